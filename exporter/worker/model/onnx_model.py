"""An ONNX file as a model: the oracle of other files, such as a quantized or converted one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from onnx import numpy_helper

from exporter.checks.file_differences import list_tensors, read_inputs
from exporter.checks.model_file import UnreadableModel, find_external_data_problems, read_model
from exporter.core.text import join_names
from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.runtimes import LoadFailure, RuntimeUnavailable
from exporter.runtimes.reference_file import ReferenceFile
from exporter.runtimes.session import OnnxValue
from exporter.worker.inputs.call import from_numpy, to_numpy
from exporter.worker.process.failure import Failure

#: The number of the order of operations inside `compute_in_other_order`.
_ORDERS: list[int] = []


class OnnxModel(torch.nn.Module):
    """A module that runs a file, with its weights as parameters.

    Only the names of the weights and their values matter: the runtime reads its own ones.
    """

    def __init__(self, file: ReferenceFile, spec: ModelSpec, *, is_wide: bool = False) -> None:
        super().__init__()
        self.file = file
        self._spec = spec
        self._is_wide = is_wide
        self._names = {item.at: item.name for item in spec.inputs}

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs of the entry, by their names in the file."""
        call = {f"args[{index}]": value for index, value in enumerate(args)}
        call |= {f"kwargs.{name}": value for name, value in kwargs.items()}
        inputs = {
            self._names[at]: to_numpy(value) for at, value in call.items() if value is not None
        }
        outputs: list[OnnxValue] | None
        if self._is_wide:
            outputs = self.file.run_in_float64(inputs)
        elif _ORDERS:
            orders = self.file.run_in_other_orders(inputs)
            outputs = next(islice(orders, _ORDERS[-1], None), None) or self.file.run(inputs)
        else:
            outputs = self.file.run(inputs)
        if outputs is None:
            raise RuntimeError(self.file.reason)
        named = dict(zip(self.file.output_names, outputs, strict=True))
        values = [named[output.name] for output in self._spec.outputs]
        return tuple(
            [from_numpy(item) for item in value] if isinstance(value, list) else from_numpy(value)
            for value in values
        )

    def widen(self) -> OnnxModel:
        """Return the model that computes in float64."""
        return OnnxModel(self.file, self._spec, is_wide=True)

    def add_weights(self, path: Path) -> None:
        """Add the floats that the file stores, with their names."""
        for name, tensor in list_tensors(read_model(path)):
            value = from_numpy(numpy_helper.to_array(tensor, base_dir=str(path.parent)).copy())
            if value.is_floating_point() and value.ndim:
                # A name of a file may contain a period, which `register_parameter` refuses.
                self._parameters[name] = torch.nn.Parameter(value, requires_grad=False)


@contextmanager
def compute_in_other_order(number: int) -> Iterator[None]:
    """Run files inside with other threads and optimizations, whose rounding is another one."""
    _ORDERS.append(number)
    try:
        yield
    finally:
        _ORDERS.pop()


def load_file(path: Path, spec: ModelSpec) -> OnnxModel:
    """Return the file as a model.

    Raises:
        Failure: Stage `source`, if it cannot be read, or has other inputs or outputs.
    """
    try:
        proto = read_model(path)
        if problems := tuple(find_external_data_problems(proto, path.parent)):
            raise UnreadableModel(f"{path.name}: {'; '.join(problems)}")
        file = ReferenceFile(path, Path(tempfile.mkdtemp(prefix="exporter-float64-")))
    except (UnreadableModel, LoadFailure, RuntimeUnavailable) as error:
        fix = "restore the file, or name another one"
        raise Failure(Stage.SOURCE, f"{spec.source}: {error}; {fix}") from error
    declared = {item.name for item in spec.inputs}
    for kind, names, expected in (
        ("inputs", {item.name for item in read_inputs(proto)}, declared),
        ("outputs", {*file.output_names}, {item.name for item in spec.outputs}),
    ):
        if other := sorted(names ^ expected if kind == "inputs" else expected - names):
            text = f"{spec.source} has the {kind} {join_names(sorted(names), 20)}, and the entry "
            text += f"declares {join_names(sorted(expected), 20)}; correct {join_names(other)}"
            raise Failure(Stage.SOURCE, text)
    model = OnnxModel(file, spec)
    model.add_weights(path)
    return model
