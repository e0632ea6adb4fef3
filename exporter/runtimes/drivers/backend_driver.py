"""The driver of any module with the ONNX backend API: `prepare`, `supports_device` and `run`.

The interface is that of `onnx.backend.base`: `prepare(model, device)` returns an object, and its
`run(inputs)` receives the inputs and returns the outputs in the order of the graph.
"""

from __future__ import annotations

import importlib
from typing import Any, Sequence

import numpy as np
import onnx
from onnx.backend.base import Backend

from exporter.runtimes.drivers.driver import (
    Driver,
    DriverFailure,
    FileRequest,
    Placement,
    Value,
    describe,
    from_bits,
    require_inputs,
    to_bits,
)

_CPU = "CPU"


class BackendDriver(Driver):
    """A file prepared by a backend."""

    def __init__(self, request: FileRequest) -> None:
        """Load the file with its external data and prepare it with the backend.

        Raises:
            DriverFailure: if the module cannot be imported or is not a backend, the backend does
                not support the device, or it does not load the file.
        """
        self._module, self._device = request.module, request.device or _CPU
        backend = _import_backend(self._module)
        self._declares_support = _declares_support(backend, self._module, self._device)
        try:
            model = onnx.load(request.path)
        except Exception as error:  # damaged in any way
            raise DriverFailure("load", "", describe(error)) from error
        stored = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [item.name for item in model.graph.input if item.name not in stored]
        self.output_names = tuple(item.name for item in model.graph.output)
        try:
            self._prepared = backend.prepare(model, device=self._device)
        except Exception as error:  # any exception, for example SkipTest
            raise DriverFailure("load", "", describe(error)) from error
        if not callable(getattr(self._prepared, "run", None)):
            problem = f"{self._module}: the object that `prepare` returned has no `run`"
            raise DriverFailure("load", problem)

    def find_placement(self) -> Placement | None:
        """Return the backend's statement, if it gave one: it does not report single nodes."""
        if not self._declares_support:
            return None
        statement = (
            f"{self._module} reports that it runs on {self._device}, without details of nodes"
        )
        return Placement(self._device, {}, statement)

    def run(self, inputs: dict[str, Value]) -> Sequence[Value]:
        require_inputs(self._inputs, inputs)
        try:
            outputs = self._prepared.run([from_bits(inputs[name]) for name in self._inputs])
        except Exception as error:  # backends raise any exception
            raise DriverFailure("run", "", describe(error)) from error
        if not isinstance(outputs, (tuple, list)):
            raise DriverFailure("run", f"{self._module}: `run` returned no sequence of outputs")
        return [to_bits(_to_arrays(output)) for output in outputs]


def _to_arrays(output: Any) -> Value:
    if isinstance(output, list):
        return [np.asarray(item) for item in output]
    return np.asarray(output)


def _import_backend(module: str) -> Any:
    """Return the module, or the class in it, that has `prepare`."""
    name, _, attribute = module.partition(":")
    try:
        backend: Any = importlib.import_module(name)
    except Exception as error:  # an incomplete installation raises any exception
        problem = f"{name} cannot be imported"
        raise DriverFailure("unavailable", problem, describe(error)) from error
    backend = getattr(backend, attribute, None) if attribute else backend
    if not callable(getattr(backend, "prepare", None)):
        raise DriverFailure("load", f"{module} is not an ONNX backend: it has no `prepare`")
    return backend


def _declares_support(backend: Any, module: str, device: str) -> bool:
    """Return True if the backend's own function reports that it supports the device.

    Raises:
        DriverFailure: if the backend reports that it does not.
    """
    supports = getattr(backend, "supports_device", None)
    function = getattr(supports, "__func__", supports)
    # The base class returns True for every device.
    if supports is None or function is vars(Backend)["supports_device"].__func__:
        return device == _CPU
    try:
        if supports(device):
            return True
    except Exception as error:  # code of any kind
        problem = f"{module}: supports_device('{device}') failed"
        raise DriverFailure("unavailable", problem, describe(error)) from error
    raise DriverFailure("unavailable", f"{module} does not support {device} on this machine")


open_file = BackendDriver
