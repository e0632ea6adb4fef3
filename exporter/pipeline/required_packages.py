"""Require the packages of workers and the modules of this checkout, before a process starts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from exporter.cache.states import read_distribution
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import TEXT_LIMIT, read_regular_file
from exporter.core.text import format_requirement
from exporter.core.toml_table import SETTINGS_FILE, read_toml_table

#: The packages that every worker imports.
_WORKER_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def require_packages(names: Sequence[str] = _WORKER_PACKAGES, *, extra: str = "export") -> None:
    """Find packages that a child process imports.

    `extra` is the extra of this distribution that installs them.

    Raises:
        ExporterError: ENVIRONMENT, with the names of all missing packages.
    """
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ExporterError(
            ExitCode.ENVIRONMENT,
            f"{', '.join(missing)} {verb} not installed here: the command needs "
            f"`pip install '{format_requirement(extra)}'`",
        )


def require_own_checkout(root: Path) -> None:
    """Require that models are not imported from another checkout of the project.

    A worktree has the same name as the checkout that is installed with `pip install -e`. If its
    modules are in a subfolder such as `src`, Python finds those of the installed checkout.

    Raises:
        ExporterError: ENVIRONMENT, with both folders.
    """
    try:
        settings = read_toml_table(root / SETTINGS_FILE).table
        installed = distribution(settings["project"]["name"])
    except (ValueError, KeyError, TypeError, PackageNotFoundError):
        return  # another check reports an invalid file
    _, location = read_distribution(installed.metadata["Name"], "")
    links = [file.locate() for file in installed.files or () if file.name.endswith(".pth")]
    lines = [line for path in links for line in _read_lines(Path(path))]
    names = (installed.read_text("top_level.txt") or "").split()
    is_flat = location in lines or any(
        (root / f"{name}{end}").exists() for name in names for end in ("", ".py")
    )
    if location and not is_flat and root.resolve() != Path(location).resolve():
        name, checkout = installed.metadata["Name"], root.resolve()
        message = (
            f"{name}: is installed from {location} (`pip install -e`), so its modules are not "
            f"those of {checkout}; run `pip install -e .` here, in an environment of this checkout"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def _read_lines(path: Path) -> list[str]:
    try:
        return read_regular_file(path, TEXT_LIMIT, may_be_link=True).decode().splitlines()
    except (OSError, ValueError):
        return []
