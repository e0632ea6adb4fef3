"""onnx.reference: the specification's own evaluator, slow and without any optimisation.

In: the path of a file. Out: a `Session`.
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

from exporter.runtimes.error_messages import first_line
from exporter.runtimes.protocol import LoadFailure, Placement, RunFailure
from exporter.runtimes.values import Array, OnnxValue


def version() -> str:
    """The version of onnx."""
    return str(onnx.__version__)


class ReferenceSession:
    """A file loaded by onnx.reference; see `Session`."""

    def __init__(self, path: Path, operators: Sequence[type[OpRun]] = ()) -> None:
        """Loads the file with its external data.

        Args:
            path: The `.onnx` file.
            operators: Kernels of custom operators.

        Raises:
            LoadFailure: where it cannot be read, or holds an operator that has no implementation.
        """
        self._path = path
        try:
            self._evaluator = _evaluator(_needed(operators, path))(str(path))
        except Exception as error:  # operators are looked up by code of any kind
            raise LoadFailure(first_line(error, path)) from error

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""
        return tuple(self._evaluator.output_names)

    @property
    def placement(self) -> Placement:
        """All of it in numpy: there is no other provider."""
        nodes = Counter(node.op_type for node in self._evaluator.rt_nodes_)
        return Placement(asked="onnx.reference", nodes={"onnx.reference": nodes})

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """Outputs in the order of the file.

        Raises:
            RunFailure: where an operator fails on these inputs.
        """
        try:
            with np.errstate(all="ignore"):
                outputs = self._evaluator.run(None, dict(inputs))
        except Exception as error:  # operators are numpy code that raises anything
            raise RunFailure(first_line(error, self._path)) from error
        return [
            [_tensor(item) for item in value] if isinstance(value, list) else _tensor(value)
            for value in outputs
        ]


def _needed(operators: Sequence[type[OpRun]], path: Path) -> Sequence[type[OpRun]]:
    """Without those that would stand in for a function that the file brings along."""
    if not operators:
        return ()
    functions = onnx.load(str(path), load_external_data=False).functions
    own = {(function.domain, function.name) for function in functions}
    return [item for item in operators if (item.op_domain, item.__name__) not in own]


def _evaluator(operators: Sequence[type[OpRun]]) -> type[ReferenceEvaluator]:
    """An evaluator with these kernels, inside functions as well: stock ones have none there."""
    if not operators:
        return ReferenceEvaluator

    class WithKernels(ReferenceEvaluator):
        def __init__(self, proto: Any, **more: Any) -> None:
            super().__init__(proto, **more | {"new_ops": list(operators)})

    return WithKernels


def _tensor(value: Any) -> Array:
    # Some operators give a number of numpy's where the graph says a tensor of rank 0.
    return np.asarray(value) if np.isscalar(value) else value
