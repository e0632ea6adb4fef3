"""The runtime of any module with the ONNX backend API: `prepare`, `supports_device` and `run`.

Input: the path of a file and a `Device` that names a module. Output: a `Session`.

The interface is that of `onnx.backend.base`: `prepare(model, device)` returns an object, and its
`run(inputs)` receives the inputs and returns the outputs in the order of the graph.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend

from exporter.manifest import Device
from exporter.runtimes.custom_kernels import Kernels
from exporter.runtimes.error_messages import format_error
from exporter.runtimes.protocol import (
    LoadFailure,
    Placement,
    RunFailure,
    RuntimeUnavailable,
    Session,
)
from exporter.runtimes.values import Array, OnnxValue

_CPU = "CPU"


def open_file(path: Path, device: Device, _kernels: Kernels) -> Session:
    """Load the file; see `runtime_registry.open_session`."""
    return BackendSession(path, device)


class BackendSession:
    """A file prepared by a backend; see `Session`."""

    def __init__(self, path: Path, device: Device) -> None:
        """Load the file with its external data and prepare it with the backend.

        Raises:
            RuntimeUnavailable: if the module cannot be imported, or does not support the device.
            LoadFailure: if the module is not a backend, or the backend does not load the file.
        """
        self._path = path
        self._module, self._device = device.module, device.device or _CPU
        backend = _import_backend(device.module, path)
        self._declares_support = _declares_support(backend, device.module, self._device, path)
        try:
            model = onnx.load(path)
        except Exception as error:  # damaged in any way
            raise LoadFailure(format_error(error, path)) from error
        stored = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [item.name for item in model.graph.input if item.name not in stored]
        self._outputs = tuple(item.name for item in model.graph.output)
        try:
            self._prepared = backend.prepare(model, device=self._device)
        except Exception as error:  # backends raise any exception, for example SkipTest
            raise LoadFailure(format_error(error, path)) from error
        if not callable(getattr(self._prepared, "run", None)):
            raise LoadFailure(f"{self._module}: the object that `prepare` returned has no `run`")

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""
        return self._outputs

    @property
    def placement(self) -> Placement | None:
        """The backend's statement, if it gave one: the API does not report single nodes."""
        if not self._declares_support:
            return None
        statement = (
            f"{self._module} reports that it runs on {self._device}, without details of nodes"
        )
        return Placement(requested=self._device, nodes={}, statement=statement)

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """Return the outputs in the order of the file.

        Raises:
            RunFailure: if an input is missing or unknown, or the backend fails on these inputs.
        """
        missing = [name for name in self._inputs if name not in inputs]
        unknown = sorted(set(inputs) - set(self._inputs))
        if missing or unknown:
            raise RunFailure(
                f"no input {missing[0]}" if missing else f"the file has no input {unknown[0]}"
            )
        try:
            outputs = self._prepared.run([inputs[name] for name in self._inputs])
        except Exception as error:
            raise RunFailure(format_error(error, self._path)) from error
        if not isinstance(outputs, tuple | list):
            raise RunFailure(f"{self._module}: `run` returned no sequence of outputs")
        return [
            [np.asarray(item) for item in output]
            if isinstance(output, list)
            else np.asarray(output)
            for output in outputs
        ]


def _import_backend(module: str, path: Path) -> Any:
    """Return the module, or the class in it, that has `prepare`."""
    name, _, attribute = module.partition(":")
    try:
        backend: Any = importlib.import_module(name)
    except Exception as error:  # an incomplete installation raises any exception
        message = f"{name} cannot be imported: {format_error(error, path)}"
        raise RuntimeUnavailable(message) from error
    backend = getattr(backend, attribute, None) if attribute else backend
    if not callable(getattr(backend, "prepare", None)):
        raise LoadFailure(f"{module} is not an ONNX backend: it has no `prepare`")
    return backend


def _declares_support(backend: Any, module: str, device: str, path: Path) -> bool:
    """Return True if the backend's own function reports that it supports the device.

    Raises:
        RuntimeUnavailable: if the backend reports that it does not.
    """
    supports = getattr(backend, "supports_device", None)
    function = getattr(supports, "__func__", supports)
    # The base class returns True for every device.
    if supports is None or function is vars(Backend)["supports_device"].__func__:
        return device == _CPU
    try:
        if supports(device):
            return True
    except Exception as error:
        message = f"{module}: supports_device('{device}') failed: {format_error(error, path)}"
        raise RuntimeUnavailable(message) from error
    raise RuntimeUnavailable(f"{module} does not support {device} on this machine")
