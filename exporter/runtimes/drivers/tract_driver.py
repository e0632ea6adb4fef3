"""The driver of tract, a runtime in Rust for the CPU."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import tract

from exporter.runtimes.drivers.driver import (
    Driver,
    DriverFailure,
    FileRequest,
    Placement,
    Value,
    describe,
    require_inputs,
)

_CPU = "CPU"


class TractDriver(Driver):
    """A file loaded and optimized by tract. It reports nodes instead of the names of outputs."""

    def __init__(self, request: FileRequest) -> None:
        """Load the file with its external data."""
        try:
            model: Any = tract.onnx().load(request.path)
            self._inputs = [model.input_name(index) for index in range(model.input_count())]
            self._runnable: Any = model.into_model().into_runnable()
        except Exception as error:
            raise DriverFailure("load", "", describe(error)) from error

    def find_placement(self) -> Placement | None:
        """Return the CPU: tract uses another device only on request."""
        return Placement(_CPU, {_CPU: {}})

    def run(self, inputs: dict[str, Value]) -> Sequence[Value]:
        require_inputs(self._inputs, inputs)
        try:
            arrays = [np.ascontiguousarray(inputs[name]) for name in self._inputs]
            # `ascontiguousarray` gives a scalar one axis.
            arrays = [
                array.reshape(np.shape(inputs[name])) for name, array in zip(self._inputs, arrays)
            ]
            outputs = self._runnable.run(arrays)
            return [np.array(output.to_numpy()) for output in outputs]
        except Exception as error:
            raise DriverFailure("run", "", describe(error)) from error


open_file = TractDriver
