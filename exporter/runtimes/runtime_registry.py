"""The table of runtimes: the built-in ones and those of plugins."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import cast

import onnx

from exporter.core.import_object import RUNTIME_GROUP, PluginError, find_plugins, load_plugin
from exporter.core.text import join_lines, redact
from exporter.manifest import Device
from exporter.manifest.syntax.runtimes import RUNTIMES
from exporter.runtimes.cuda_messages import describe_cuda_failure
from exporter.runtimes.drivers.driver import (
    Driver,
    DriverFailure,
    FileRequest,
    Placement,
    from_bits,
    load_file,
    name_module,
    to_bits,
)
from exporter.runtimes.file_request import make_request
from exporter.runtimes.load_failure import describe_load_failure
from exporter.runtimes.runtime_process import RuntimeProcess
from exporter.runtimes.session import (
    NO_KERNELS,
    Array,
    Kernels,
    LoadFailure,
    OnnxValue,
    ProviderMissing,
    RunFailure,
    RuntimeUnavailable,
    Session,
)

#: The devices other than the CPU that this process used itself.
_ACCELERATORS: set[str] = set()
_FAILURES = {
    "missing": ProviderMissing,
    "unavailable": RuntimeUnavailable,
    "load": LoadFailure,
    "run": RunFailure,
}
_CPU = "CPUExecutionProvider"


class DriverSession:
    """A file loaded by a driver; see `Session`."""

    def __init__(self, path: Path, device: Device, kernels: Kernels) -> None:
        """Load the file; see `open_session` for the exceptions."""
        self._path, self._strict = path, device.strict
        request = make_request(path, device, kernels)
        try:
            self._driver = _load(request, device)
            self._placement = self._driver.find_placement()
        except DriverFailure as failure:
            text = ""
            if device.row.has_releases and failure.kind == "load":
                row = device.row
                provider = row.title if row.needs_node else (*device.providers, _CPU)[0]
                text = describe_load_failure(failure.message, path, provider)
            message = text or _format_failure(failure, path)
            raise _FAILURES[failure.kind](message) from failure
        self._output_names = self._driver.output_names
        if not self._output_names:
            model = onnx.load(str(path), load_external_data=False)
            self._output_names = tuple(item.name for item in model.graph.output)
        if kernels.libraries:
            self._require_own_functions()

    @property
    def output_names(self) -> Sequence[str]:
        return self._output_names

    @property
    def placement(self) -> Placement | None:
        return self._placement and self._placement._replace(strict=self._strict, operators=None)

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        try:
            outputs = self._driver.run({name: to_bits(array) for name, array in inputs.items()})
        except DriverFailure as failure:
            raise RunFailure(_format_failure(failure, self._path)) from failure
        return [from_bits(output) for output in outputs]

    def _require_own_functions(self) -> None:
        """Raise LoadFailure if a registered kernel may replace a function of the file."""
        model = onnx.load(str(self._path), load_external_data=False)
        functions = {f"{item.domain}::{item.name}" for item in model.functions}
        operators = self._placement.operators if self._placement else None
        if operators is None and functions:
            raise LoadFailure(
                "this release of the runtime does not report whether a registered kernel replaces "
                f"{', '.join(sorted(functions))}, a function of the file; use a newer release"
            )
        # A function that is not replaced is inlined before nodes are assigned.
        if replaced := sorted(functions & set(operators or ())):
            raise LoadFailure(
                f"a registered kernel replaces {', '.join(replaced)}, a function of the file: the "
                "function itself would not be tested"
            )


def _load(request: FileRequest, device: Device) -> Driver:
    environment = device.environment
    if environment is None:
        if {*device.providers, _CPU} != {_CPU} or device.device not in ("", "CPU"):
            _ACCELERATORS.add(device.name)
        return load_file(request)
    if not environment.interpreter:
        problem = environment.problem or (
            f"the environment {environment.name} is not created; run `exporter export`"
        )
        raise DriverFailure("unavailable", problem)
    if request.operators:
        problem = f"kernels in Python cannot be passed to the environment {environment.name}"
        raise DriverFailure("unavailable", problem)
    return RuntimeProcess(request, environment.interpreter, environment.name)


def _format_failure(failure: DriverFailure, path: Path) -> str:
    message = format_runtime_message(failure.message, path)
    return ": ".join(part for part in (failure.problem, message) if part)


OpenSession = Callable[[Path, Device, Kernels], Session]


def import_driver(name: str) -> None:
    """Import the driver of a built-in runtime, if it is installed."""
    if name in RUNTIMES:
        with suppress(Exception):  # a session reports it
            import_module(name_module(name))


def uses_accelerator() -> bool:
    """Return True if this process itself used other hardware than the CPU, which no fork may."""
    return bool(_ACCELERATORS)


def open_session(path: Path, device: Device, kernels: Kernels = NO_KERNELS) -> Session:
    """Load the file on the device.

    Raises:
        RuntimeUnavailable: if this machine does not have the runtime or the device.
        LoadFailure: if the runtime does not load the file.
        RuntimeProcessEnd: if the process of the device's environment ended.
    """
    name = device.runtime
    if name in RUNTIMES:
        return DriverSession(path, device, kernels)
    entry_point = find_plugins(RUNTIME_GROUP).get(name)
    if entry_point is None:
        raise RuntimeUnavailable(
            f"runtime '{name}': no installed plugin provides it; install one, or use one of "
            f"{', '.join(RUNTIMES)}"
        )
    try:
        opener = load_plugin(entry_point)
    except PluginError as error:
        raise RuntimeUnavailable(str(error)) from error
    if not callable(opener):
        raise RuntimeUnavailable(f"runtime '{name}': {entry_point.value} is not a function")
    return cast(OpenSession, opener)(path, device, kernels)


#: Characters of a message.
_MAX_LENGTH = 400
#: The number of an error code; the name of the code remains.
_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : ")


def format_runtime_message(text: str, path: Path) -> str:
    """Return the first line of a message, or what CUDA reports in it."""
    if failure := describe_cuda_failure(text, os.environ):
        return failure
    lines = [line for line in text.replace(f"{path.parent}/", "").splitlines() if line.strip()]
    return redact(join_lines(_CODE.sub("", lines[0])), limit=_MAX_LENGTH) if lines else ""
