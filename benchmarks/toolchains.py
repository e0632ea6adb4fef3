"""Run the quick tests with other versions of onnx, onnxscript and ONNX Runtime.

`lowest` are the lower bounds of pyproject.toml, `pinned` the installed packages, and `newest` the
newest releases with pre-releases. torch is the installed one. A package is a toolchain with its
newest release beside the installed packages, so a failure says which release broke what. Exits with
1 if a toolchain fails, except `newest`, because a fix for a pre-release may not exist yet.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from exporter.pipeline.device_environments import InstallationFailure, install_environment
from exporter.virtual_environments import EnvironmentDefinition

ROOT = Path(__file__).parents[1]
#: Environments and caches; ignored by git.
FOLDER = ROOT / ".nox" / "toolchains"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
#: Exports with both exporters, and every check on real files.
QUICK_TESTS = (
    "tests/unit/runtimes",
    "tests/worker/export",
    "tests/worker/verify",
    "tests/integration/test_export_to_gate.py",
)
#: From `init` to the gate, and models that generate: what a newcomer with the newest releases does.
FLOW = ("tests/integration/test_export_to_gate.py", "tests/integration/test_generation.py")
TOOLCHAINS = ("lowest", "pinned", "newest")
#: Packages whose newest release is a toolchain of its own.
RELEASES = ("torch", *PACKAGES, "transformers")
_MAY_FAIL = "newest"


def read_lower_bounds(pyproject: Path) -> dict[str, str]:
    """Return the lowest supported version of each package.

    Raises:
        ValueError: if a package has no lower bound.
    """
    extras = tomllib.loads(pyproject.read_text("utf-8"))["project"]["optional-dependencies"]
    found = [re.fullmatch(r"([a-z-]+)>=([\w.]+)", each) for each in extras["export"]]
    bounds = {match[1]: match[2] for match in found if match and match[1] in PACKAGES}
    if missing := [name for name in PACKAGES if name not in bounds]:
        raise ValueError(f"{pyproject}: {', '.join(missing)} without a lower bound in `export`")
    return bounds


def make_requirements(toolchain: str, bounds: dict[str, str]) -> tuple[str, ...]:
    """Return the requirements of a toolchain; none for the installed packages."""
    match toolchain:
        case "lowest":
            return tuple(f"{name}=={version}" for name, version in bounds.items())
        case "newest":
            return tuple(f"{name}>={version}" for name, version in bounds.items())
        case "pinned":
            return ()
        case package:
            return (package,)


def run_tests(toolchain: str, bounds: dict[str, str], tests: list[str]) -> bool:
    """Install a toolchain, run the tests with it and print the result."""
    os.environ["PIP_PRE"] = "1" if toolchain == "newest" else "0"
    definition = EnvironmentDefinition(
        requirements=make_requirements(toolchain, bounds), adds_to_current=True
    )
    started = time.monotonic()
    try:
        installed = install_environment(definition, FOLDER, update=True)
    except InstallationFailure as error:
        print(f"{toolchain}: cannot be installed: {error}")
        return False
    found = (name for name in RELEASES if name in installed.packages)
    versions = ", ".join(f"{name} {installed.packages[name]}" for name in found)
    print(f"{toolchain}: {versions}", flush=True)
    selected = tests or [*(QUICK_TESTS if toolchain in TOOLCHAINS else FLOW)]
    command = [str(installed.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *selected]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    seconds = time.monotonic() - started
    print(f"{toolchain}: {'passed' if not code else 'failed'} in {seconds:.0f} s", flush=True)
    return not code


def main(arguments: list[str]) -> int:
    """Run the tests with each toolchain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=[])
    choices = (*TOOLCHAINS, *RELEASES)
    parser.add_argument("--toolchain", action="append", choices=choices)
    options = parser.parse_args(arguments)
    bounds = read_lower_bounds(ROOT / "pyproject.toml")
    selected = options.toolchain or TOOLCHAINS
    passed = {name: run_tests(name, bounds, options.tests) for name in selected}
    return int(any(not each for name, each in passed.items() if name != _MAY_FAIL))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
