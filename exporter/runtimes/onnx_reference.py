"""The runtime onnx.reference: the specification's own evaluator, slow and not optimized.

Input: the path of a file. Output: a `Session`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from exporter.manifest import Device
from exporter.runtimes.custom_kernels import Kernels
from exporter.runtimes.error_messages import format_error
from exporter.runtimes.protocol import LoadFailure, Placement, RunFailure, Session
from exporter.runtimes.values import Array, OnnxValue


def open_file(path: Path, _device: Device, kernels: Kernels) -> Session:
    """Load the file; see `runtime_registry.open_session`."""
    return ReferenceSession(path, kernels.operators)


class ReferenceSession:
    """A file loaded by onnx.reference; see `Session`."""

    def __init__(self, path: Path, operators: Sequence[type[OpRun]] = ()) -> None:
        """Load the file with its external data.

        Args:
            path: The `.onnx` file.
            operators: Kernels of custom operators.

        Raises:
            LoadFailure: if it cannot be read, or contains an operator without implementation.
        """
        self._path = path
        try:
            if operators:
                # A kernel must not replace a function of the file.
                functions = onnx.load(str(path), load_external_data=False).functions
                names = {(function.domain, function.name) for function in functions}
                operators = [op for op in operators if (op.op_domain, op.__name__) not in names]
            self._evaluator = _build_evaluator_class(operators)(str(path))
        except Exception as error:  # operators are looked up by code of any kind
            raise LoadFailure(format_error(error, path)) from error

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""
        return tuple(self._evaluator.output_names)

    @property
    def placement(self) -> Placement:
        """All nodes run in numpy: no other provider exists."""
        nodes = Counter(node.op_type for node in self._evaluator.rt_nodes_)
        return Placement(requested="onnx.reference", nodes={"onnx.reference": nodes})

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """Return the outputs in the order of the file.

        Raises:
            RunFailure: if an operator fails on these inputs.
        """
        try:
            with np.errstate(all="ignore"):
                outputs = self._evaluator.run(None, dict(inputs))
        except Exception as error:  # operators are numpy code that raises anything
            raise RunFailure(format_error(error, self._path)) from error
        return [
            [_to_array(item) for item in value] if isinstance(value, list) else _to_array(value)
            for value in outputs
        ]


def _build_evaluator_class(operators: Sequence[type[OpRun]]) -> type[ReferenceEvaluator]:
    """Return an evaluator that has these kernels inside functions too, as ONNX's has not."""
    if not operators:
        return ReferenceEvaluator

    class WithKernels(ReferenceEvaluator):
        def __init__(self, proto: Any, **options: Any) -> None:
            super().__init__(proto, **options | {"new_ops": list(operators)})

    return WithKernels


def _to_array(value: Any) -> Array:
    # Some operators return a numpy scalar for a tensor of rank 0.
    return np.asarray(value) if np.isscalar(value) else value
