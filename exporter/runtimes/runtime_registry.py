"""The table of runtimes: the built-in ones and those of plugins."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import onnx
from google.protobuf.message import DecodeError

from exporter.core.import_object import RUNTIME_GROUP, PluginError, find_plugins, load_plugin
from exporter.core.system import IS_LINUX
from exporter.core.text import join_lines, redact
from exporter.manifest import Device
from exporter.manifest.syntax.runtimes import RUNTIMES
from exporter.runtimes.chain import ChainSession, read_chain
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
from exporter.runtimes.node_transfers import count_transfers
from exporter.runtimes.runtime_process import RuntimeProcess
from exporter.runtimes.session import (
    NO_KERNELS,
    Array,
    Kernels,
    LoadFailure,
    OnnxValue,
    ProviderMissing,
    RunFailure,
    RuntimeProcessEnd,
    RuntimeUnavailable,
    Session,
)

#: The devices other than the CPU that this process used itself.
_ACCELERATORS: set[str] = set()
#: Those that start in no process of this machine.
_ABSENT: set[str] = set()
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
            if self._placement and self._placement.others:
                self._placement = _add_transfers(self._placement, request, device)
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
            proto = onnx.load(str(path), load_external_data=False)
            self._output_names = tuple(item.name for item in proto.graph.output)
        if kernels.libraries:
            self._require_own_functions()

    @property
    def output_names(self) -> Sequence[str]:
        return self._output_names

    @property
    def placement(self) -> Placement | None:
        return self._placement and self._placement._replace(
            strict=self._strict, operators=None, others=()
        )

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        try:
            outputs = self._driver.run({name: to_bits(array) for name, array in inputs.items()})
        except DriverFailure as failure:
            raise RunFailure(_format_failure(failure, self._path)) from failure
        return [from_bits(output) for output in outputs]

    def _require_own_functions(self) -> None:
        """Raise LoadFailure if a registered kernel may replace a function of the file."""
        proto = onnx.load(str(self._path), load_external_data=False)
        functions = {f"{item.domain}::{item.name}" for item in proto.functions}
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
        if {*device.providers, _CPU} == {_CPU} and device.device in ("", "CPU"):
            return load_file(request)
        _ACCELERATORS.add(device.name)
        try:
            return load_file(request)
        except DriverFailure as failure:
            return _load_in_new_process(request, device, failure)
    if not environment.interpreter:
        problem = environment.problem or (
            f"the environment {environment.name} is not created; run `exporter export`"
        )
        raise DriverFailure("unavailable", problem)
    if request.operators:
        problem = f"kernels in Python cannot be passed to the environment {environment.name}"
        raise DriverFailure("unavailable", problem)
    return RuntimeProcess(request, environment.interpreter, environment.name)


def _add_transfers(placement: Placement, request: FileRequest, device: Device) -> Placement:
    """Return the placement with what its nodes on the CPU cost, if the runtime shows it."""
    with TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        options = {**(request.session_options or {}), "optimized_model_filepath": str(optimized)}
        try:
            _load(request._replace(session_options=options), device)
            model = onnx.load(str(optimized), load_external_data=False)
        except (DriverFailure, RuntimeProcessEnd, OSError, DecodeError):
            return placement  # a provider may compile its nodes, which no file can have
    transfers = count_transfers(model, placement.others)
    return placement._replace(shapes=transfers.shapes, copies=transfers.copies)


def _load_in_new_process(request: FileRequest, device: Device, failure: DriverFailure) -> Driver:
    """Load a file for which a device is unavailable in this process.

    If a process asks for its GPUs, as a model does by `torch.cuda.is_available()`, CUDA works in
    none of its forks. This process may be such a fork, so only a new one shows an absent device.

    Raises:
        DriverFailure: `load`, with the reason of the runtime, if the device refuses only this file;
            the failure of this process if the device starts nowhere.
    """
    if failure.kind != "unavailable" or device.name in _ABSENT or request.operators:
        raise failure
    try:
        return RuntimeProcess(request, sys.executable, device.name)
    except RuntimeProcessEnd:
        raise failure from None
    except DriverFailure as other:
        if other.kind == "load":
            raise
        _ABSENT.add(device.name)
        raise failure from other


def _format_failure(failure: DriverFailure, path: Path) -> str:
    message = format_runtime_message(failure.message, path)
    return ": ".join(part for part in (failure.problem, message) if part)


#: The files of the system of which one exists if its driver can find a device: of NVIDIA, also on
#: Jetson; of AMD; of Intel. WSL has one for all.
_WSL = "/dev/dxg"
_NVIDIA, _AMD = ("/dev/nvidiactl", "/dev/nvmap", _WSL), ("/dev/kfd", _WSL)
_DEVICE_FILES = {
    **{f"{name}ExecutionProvider": _NVIDIA for name in ("CUDA", "Tensorrt", "NvTensorRTRTX")},
    **{f"{name}ExecutionProvider": _AMD for name in ("ROCM", "MIGraphX")},
    "openvino GPU": ("/dev/dri", _WSL),
    "openvino NPU": ("/dev/accel", _WSL),
}


def list_absent_files(device: Device) -> tuple[str, ...]:
    """Return the files of the system that a device needs one of, if none exists, else nothing.

    A device with an environment or a library of its own may be unavailable for other reasons.
    """
    name = (*device.providers, f"{device.runtime} {device.device}")[0]
    files = _DEVICE_FILES.get(name, ()) if IS_LINUX else ()
    is_installed = device.environment is None and not device.provider_library
    return files if is_installed and not any(map(os.path.lexists, files)) else ()


OpenSession = Callable[[Path, Device, Kernels], Session]


def import_driver(name: str) -> None:
    """Import the driver of a built-in runtime, if it is installed."""
    if name in RUNTIMES:
        with suppress(Exception):  # whoever opens a session gets the error
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
    if chain := read_chain(path):
        return ChainSession(path, chain, lambda link: _open_file(link, device, kernels))
    return _open_file(path, device, kernels)


def _open_file(path: Path, device: Device, kernels: Kernels) -> Session:
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
