"""Python and the packages: there, new enough, and importable.

In: the environment of workers. Out: findings.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from exporter.processes import ForkServerStarter
from exporter.tools.doctor.client import ask
from exporter.tools.doctor.diagnosis import (
    Diagnosis,
    note,
    ok,
    problem,
)
from exporter.tools.doctor.protocol import ProbeResponse, Question

#: The oldest versions that work; a test holds them against pyproject.toml.
PYTHON = "3.11"
FLOORS = {
    "torch": "2.10",
    "onnx": "1.21",
    "onnxscript": "0.5",
    "onnxruntime": "1.20",
    "numpy": "2.0",
    "safetensors": "0.4.3",
}
OPTIONAL = {"openvino": ("2024.6", "only the device openvino needs it")}
_INSTALL = "`pip install 'onnx-exporter-matrix[export]'`"


def examine_installed(environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Looks at every package; what workers import is imported, in a process of its own."""
    yield _python()
    answer = ask(Question(), environment)
    if answer.problem:
        yield problem("packages", answer.problem)
    for name, floor in FLOORS.items():
        yield _package(name, floor, answer)
    for name, (floor, why) in OPTIONAL.items():
        found = _installed(name)
        yield _aged(name, found, floor) if found else ok(name, f"not installed: {why}")


def examine_warm_workers(environment: Mapping[str, str]) -> Diagnosis:
    """Whether workers are forked from a process that has torch loaded."""
    about = "workers"
    if sys.platform != "linux":
        return note(about, "each loads torch anew, some seconds: warm ones are for Linux")
    warm = ForkServerStarter(environment)
    try:
        if warm.is_warm():
            return ok(about, "start warm, forked from a process that has torch loaded")
    finally:
        warm.close()
    return problem(about, "the process that they are forked from does not come up")


def is_older(found: str, floor: str) -> bool:
    """Whether a version is older than another, by its leading numbers: `2.13.0+cpu`, `2.10`."""
    return _numbers(found) < _numbers(floor)


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    return tuple(numbers + [0] * (4 - len(numbers)))


def _python() -> Diagnosis:
    here = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if is_older(platform.python_version(), PYTHON):
        return problem("python", f"{here}: {PYTHON} or later is needed")
    return ok("python", here)


def _package(name: str, floor: str, answer: ProbeResponse) -> Diagnosis:
    found = answer.imported.get(name) or _installed(name)
    if not found:
        return problem(name, f"not installed: an export needs {_INSTALL}")
    if name in answer.failed:
        return problem(name, f"{found} cannot be imported: {answer.failed[name]}")
    aged = _aged(name, found, floor)
    if aged.level != "ok":
        return aged
    if name == "torch" and answer.imported:
        return _torch(found, answer)
    if name == "onnxruntime" and answer.providers:
        return ok(name, f"{found} with {', '.join(answer.providers)}")
    return aged


def _torch(found: str, answer: ProbeResponse) -> Diagnosis:
    known = " and ".join(answer.known_torch)
    if answer.is_known_torch:
        return ok("torch", f"{found}: one capture serves all opsets")
    said = f"{found} is not {known}, which is known here: exports go by torch's public interface"
    return note("torch", f"{said} alone, and decompose the model for each opset, which is slower")


def _aged(name: str, found: str, floor: str) -> Diagnosis:
    if is_older(found, floor):
        return problem(name, f"{found} is too old: {floor} or later is needed")
    return ok(name, found)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
