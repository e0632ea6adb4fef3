"""Python and the packages: installed, recent enough and importable."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from exporter.processes import ForkServerStarter
from exporter.tools.doctor.client import run_probe
from exporter.tools.doctor.protocol import Diagnosis, Level, ProbeRequest, ProbeResponse

#: The oldest versions that work; a test compares them with pyproject.toml.
MINIMUM_PYTHON = "3.11"
MINIMUM_VERSIONS = {
    "torch": "2.10",
    "onnx": "1.21",
    "onnxscript": "0.6.2",
    "onnxruntime": "1.20",
    "numpy": "2.0",
    "safetensors": "0.4.3",
}
OPTIONAL = {"openvino": ("2024.6", "only the device openvino needs it")}
_INSTALL = "`pip install 'onnx-exporter-matrix[export]'`"


def examine_packages(environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Return a diagnosis of Python and of each package, imported as in a worker."""
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if is_older(platform.python_version(), MINIMUM_PYTHON):
        yield Diagnosis.problem("python", f"{python}: {MINIMUM_PYTHON} or later is needed")
    else:
        yield Diagnosis.ok("python", python)
    response = run_probe(ProbeRequest(), environment)
    if response.problem:
        yield Diagnosis.problem("packages", response.problem)
    for name, minimum in MINIMUM_VERSIONS.items():
        yield _examine_package(name, minimum, response)
    for name, (minimum, use) in OPTIONAL.items():
        if installed := _find_version(name):
            yield _compare_version(name, installed, minimum)
        else:
            yield Diagnosis.ok(name, f"not installed: {use}")


def examine_fork_server(environment: Mapping[str, str]) -> Diagnosis:
    """Return a problem if the fork server, which has torch imported, does not start."""
    if sys.platform != "linux":
        message = "each imports torch for some seconds, because the fork server is for Linux"
        return Diagnosis.note("workers", message)
    starter = ForkServerStarter(environment)
    try:
        if starter.is_available():
            return Diagnosis.ok("workers", "the fork server has torch imported")
    finally:
        starter.close()
    return Diagnosis.problem("workers", "the fork server does not start")


def is_older(installed: str, minimum: str) -> bool:
    """Return True if a version such as `2.9.1+cpu` is older than `2.10`."""
    return _parse_numbers(installed) < _parse_numbers(minimum)


def _parse_numbers(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    return tuple(numbers + [0] * (4 - len(numbers)))


def _examine_package(name: str, minimum: str, response: ProbeResponse) -> Diagnosis:
    installed = response.versions.get(name) or _find_version(name)
    if not installed:
        return Diagnosis.problem(name, f"not installed: an export needs {_INSTALL}")
    if error := response.import_errors.get(name):
        return Diagnosis.problem(name, f"{installed} cannot be imported: {error}")
    diagnosis = _compare_version(name, installed, minimum)
    if diagnosis.level is not Level.OK:
        return diagnosis
    if name == "torch" and response.versions:
        if response.is_known_torch:
            return Diagnosis.ok(name, f"{installed}: one capture serves all opsets")
        tested = " or ".join(response.known_torch)
        return Diagnosis.note(
            name,
            f"{installed} is not {tested}: exports use only the public interface of torch and "
            "decompose the model for each opset, which is slower",
        )
    if name == "onnxruntime" and response.providers:
        return Diagnosis.ok(name, f"{installed} with {', '.join(response.providers)}")
    return diagnosis


def _compare_version(name: str, installed: str, minimum: str) -> Diagnosis:
    if is_older(installed, minimum):
        return Diagnosis.problem(name, f"{installed} is too old: {minimum} or later is needed")
    return Diagnosis.ok(name, installed)


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
