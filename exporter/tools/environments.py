"""The command `environments`: the tables for the release of a runtime and its device."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.core.errors import ExitCode, ExporterError, suggest_nearest
from exporter.core.known_names import RUNTIMES
from exporter.environments import NPM

#: Plugins of ONNX Runtime: the provider, and more lines of the device's table.
_PLUGINS: Mapping[str, tuple[str, str]] = {
    "onnxruntime-ep-webgpu": (
        "WebGpuExecutionProvider",
        (
            "# Without a GPU, with SwiftShader of Debian's package chromium:\n"
            '# variables = { ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER = "1", '
            'VK_ICD_FILENAMES = "/usr/lib/chromium/vk_swiftshader_icd.json", '
            'LD_LIBRARY_PATH = "/usr/lib/chromium" }'
        ),
    ),
    "onnxruntime-ep-openvino": ("OpenVINOExecutionProvider", ""),
    "onnxruntime-qnn": (
        "QNNExecutionProvider",
        'provider_options = { QNNExecutionProvider = { backend_type = "htp" } }',
    ),
}
#: Package -> the beginning of the device's name, and the value of `runtime`.
RECIPES: Mapping[str, tuple[str, str]] = {
    **{row.package: (row.prefix, name) for name, row in RUNTIMES.items() if row.package},
    **{package: (package.rpartition("-")[2], "onnxruntime") for package in _PLUGINS},
}
#: The first release of ONNX Runtime that accepts numpy 2.
_FIRST_WITH_NUMPY_2 = (1, 19)
#: The first release of ONNX Runtime with wheels for a Python.
_FIRST_WITH_PYTHON = {(3, 12): (1, 17), (3, 13): (1, 20), (3, 14): (1, 24)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The content of two tables of pyproject.toml."""

    name: str
    """Of the environment and of the device."""
    requirements: tuple[str, ...]
    python: str
    """The interpreter; empty: the running one."""
    runtime: str
    providers: tuple[str, ...]
    library: str = ""
    """The function that returns the library of a plugin."""
    more: str = ""
    """The other lines of the device's table."""

    def __str__(self) -> str:
        """Return the tables as TOML; JSON has the same strings and lists."""
        lines = [
            f"[tool.exporter.environments.{self.name}]",
            f"requirements = {json.dumps(self.requirements)}",
            *([f"python = {json.dumps(self.python)}"] if self.python else []),
            "",
            f"[tool.exporter.devices.{self.name}]",
            f"runtime = {json.dumps(self.runtime)}",
            *([f"providers = {json.dumps(self.providers)}"] if self.providers else []),
            f"environment = {json.dumps(self.name)}",
            *([f"provider_library = {json.dumps(self.library)}"] if self.library else []),
            *([self.more] if self.more else []),
        ]
        return "\n".join(lines)


def make_recipe(package: str, version: str, name: str = "", python: str = "") -> Recipe:
    """Return the recipe; an empty name or interpreter is chosen from the version.

    Raises:
        ExporterError: MANIFEST, if the package or the version is unknown.
    """
    if package not in RECIPES:
        known = ", ".join(RECIPES)
        hint = suggest_nearest(package, RECIPES) or f"; use one of {known}"
        raise ExporterError(ExitCode.MANIFEST, f"no recipe has the name '{package}'{hint}")
    if not re.fullmatch(r"\d{1,4}\.\d{1,4}(\.\d{1,4})?", version, re.ASCII):
        message = f"expected a version such as 1.17 or 1.17.3, got '{version}'"
        raise ExporterError(ExitCode.MANIFEST, message)
    prefix, runtime = RECIPES[package]
    numbers = tuple(map(int, version.split(".")))
    suffix = ".*" if len(numbers) == 2 else ""
    requirements = [f"{package}=={version}{suffix}"]
    if RUNTIMES[runtime].needs_node:
        requirements = [f"{NPM}{package}@{version}"]
    provider, more = _PLUGINS.get(package, ("CPUExecutionProvider", ""))
    if package in _PLUGINS:
        requirements.append("onnxruntime>=1.24")
    if package == "onnxruntime" and numbers[:2] < _FIRST_WITH_NUMPY_2:
        requirements.append("numpy<2")
    return Recipe(
        name=name or f"{prefix}{version.replace('.', '')}",
        requirements=tuple(requirements),
        python=python or (_find_python(numbers[:2]) if package == "onnxruntime" else ""),
        runtime=runtime,
        providers=(provider,) if runtime == "onnxruntime" else (),
        library=f"{package.replace('-', '_')}:get_library_path" if package in _PLUGINS else "",
        more=more,
    )


def _find_python(release: tuple[int, ...]) -> str:
    """Return an older Python if the release of ONNX Runtime has no wheel for the running one."""
    unsupported = [python for python, first in _FIRST_WITH_PYTHON.items() if release < first]
    if not unsupported or sys.version_info[:2] < min(unsupported):
        return ""
    major, minor = min(unsupported)
    return f"python{major}.{minor - 1}"
