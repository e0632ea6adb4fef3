"""The driver of onnx.reference: the specification's own evaluator, slow and not optimized."""

from __future__ import annotations

from collections import Counter
from typing import Any, Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from exporter.runtimes.drivers.driver import (
    Driver,
    DriverFailure,
    FileRequest,
    Placement,
    Value,
    describe,
    from_bits,
    to_bits,
)


class ReferenceDriver(Driver):
    """A file loaded by onnx.reference."""

    def __init__(self, request: FileRequest) -> None:
        """Load the file with its external data."""
        operators: list[Any] = list(request.operators)
        try:
            if operators:
                # A kernel must not replace a function of the file.
                functions = onnx.load(request.path, load_external_data=False).functions
                names = {(function.domain, function.name) for function in functions}
                operators = [op for op in operators if (op.op_domain, op.__name__) not in names]
            self._evaluator = _build_evaluator_class(operators)(request.path)
        except Exception as error:  # operators are looked up by code of any kind
            raise DriverFailure("load", "", describe(error)) from error
        self.output_names = tuple(self._evaluator.output_names)

    def find_placement(self) -> Placement | None:
        """Return all nodes in numpy: no other provider exists."""
        nodes = Counter(node.op_type for node in self._evaluator.rt_nodes_)
        return Placement("onnx.reference", {"onnx.reference": dict(nodes)})

    def run(self, inputs: dict[str, Value]) -> Sequence[Value]:
        try:
            feeds = {name: from_bits(value) for name, value in inputs.items()}
            with np.errstate(all="ignore"):
                outputs = self._evaluator.run(None, feeds)
        except Exception as error:  # operators are numpy code that raises anything
            raise DriverFailure("run", "", describe(error)) from error
        return [to_bits(_to_arrays(value)) for value in outputs]


def _build_evaluator_class(operators: Sequence[Any]) -> Any:
    """Return an evaluator that has these kernels inside functions too, as ONNX's has not."""
    if not operators:
        return ReferenceEvaluator

    class WithKernels(ReferenceEvaluator):
        def __init__(self, proto: Any, **options: Any) -> None:
            super().__init__(proto, **{**options, "new_ops": list(operators)})

    return WithKernels


def _to_arrays(value: Any) -> Value:
    if isinstance(value, list):
        return [_to_arrays(item) for item in value]
    # Some operators return a numpy scalar for a tensor of rank 0.
    return np.asarray(value) if np.isscalar(value) else value


open_file = ReferenceDriver
