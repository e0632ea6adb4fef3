"""Small files with their contracts and with what PyTorch would have said about them.

The model of most tests is `y = x * 2 + b` over an axis: a text in ONNX's own syntax, so that a
test can change a word of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import parser

from exporter.checks.files.sample_files import write_sample
from exporter.checks.protocol import CheckContext
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference, Sample
from exporter.manifest import (
    Axis,
    Input,
    ModelSpec,
    Output,
)
from exporter.runtimes import Placement
from exporter.runtimes.values import OnnxValue
from tests.unit.factory import make_spec

Array = np.ndarray[Any, Any]
Arrays = Sequence[Array]

DOUBLE = """<ir_version: 8, opset_import: ["" : 18]>
double (float[batch, 3] x) => (float[batch, 3] y)
<float[1] two = {2.0}> { y = Mul(x, two) }
"""
X = Input(name="x", shape=("batch", 3), at="args[0]")
Y = Output(name="y", shape=("batch", 3))
BATCH = Axis(name="batch", example=2)


def contract(**fields: Any) -> ModelSpec:
    """The contract of `DOUBLE`, but for `fields`."""
    defaults: dict[str, Any] = {"inputs": (X,), "outputs": (Y,), "axes": (BATCH,)}
    return make_spec("double", **{**defaults, **fields})


def shapes(text: str) -> tuple[int | str, ...]:
    """`"batch, 3"` as a shape."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(int(word) if word.isdigit() else word for word in words)


def value(cls: type[Any], name: str, shape: str, dtype: str = "float32", **fields: Any) -> Any:
    """An `Input` or `Output`."""
    where = {"at": f"kwargs.{name}"} if cls is Input else {}
    return cls(name=name, shape=shapes(shape), dtype=dtype, **where, **fields)


def make_subject(
    folder: Path,
    model: str | onnx.ModelProto = DOUBLE,
    *,
    spec: ModelSpec | None = None,
    opset: int = 18,
    reference: Reference | None = None,
) -> CheckContext:
    """Writes the file and gives it a contract."""
    if isinstance(model, str):
        model = parser.parse_model(model)
    subject = CheckContext(
        folder=JobFolder(folder),
        opset=opset,
        spec=spec or contract(),
        reference=reference or make_reference(),
    )
    onnx.save(model, subject.path)
    return subject


def make_reference(*samples: Sample, outputs: int = 1, **fields: Any) -> Reference:
    """PyTorch agrees with itself, its outputs move, and there is no float64."""
    defaults: dict[str, Any] = {
        "samples": samples,
        "noise": (None,) * outputs,
        "output_spread": (1.0,) * outputs,
    }
    return Reference(**{**defaults, **fields})


def draw(batch: int, seed: int = 0) -> Array:
    """An input of `DOUBLE`."""
    return np.random.default_rng(seed).normal(size=(batch, 3)).astype(np.float32)


def write(
    folder: Path,
    index: int,
    inputs: Arrays,
    outputs: Sequence[OnnxValue],
    *,
    exact: Sequence[OnnxValue] = (),
    **fields: Any,
) -> Sample:
    """Writes a sample as the worker does."""
    write_sample(JobFolder(folder).sample(index), inputs, outputs, exact)
    scales = tuple(
        _scale(array) if isinstance(array, np.ndarray) and array.dtype.kind == "f" else 0.0
        for array in outputs
    )
    defaults: dict[str, Any] = {"name": "declared", "kind": "declared", "axes": {"batch": 2}}
    return Sample(index=index, scales=scales, **{**defaults, **fields})


def _scale(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)]).astype(np.float64)
    return float(finite.max()) if finite.size else 0.0


def doubled(batch: int, seed: int = 0) -> tuple[list[Array], list[Array]]:
    """Inputs and outputs of `DOUBLE`."""
    x = draw(batch, seed)
    return [x], [x * np.float32(2)]


def declared(folder: Path, **fields: Any) -> Sample:
    """The sample of the declared inputs."""
    return write(folder, 0, *doubled(2), **fields)


def at(folder: Path, index: int, batch: int) -> Sample:
    """A sample at another size."""
    inputs, outputs = doubled(batch, index)
    name = f"batch={batch}"
    return write(folder, index, inputs, outputs, axes={"batch": batch}, name=name, kind="axis")


def subject(folder: Path, *samples: Sample, **fields: Any) -> CheckContext:
    """`DOUBLE` with these samples and a contract of these fields."""
    return make_subject(folder, spec=contract(**fields), reference=make_reference(*samples))


def as_kind(sample: Sample, kind: str, name: str) -> Sample:
    """The sample as one of another kind."""
    return sample.model_copy(update={"kind": kind, "name": name})


def axes_of(*wrong: int) -> Callable[[Any], Any]:
    """Doubles, but not at these batch sizes."""
    return lambda x: [x * np.float32(3 if len(x) in wrong else 2)]


HERE = Placement(requested="here", nodes={"here": {"Mul": 1}})


class Gives:
    """A session that puts out what it was made with, whatever goes in."""

    placement: Placement | None = HERE

    def __init__(self, *outputs: object, names: Sequence[str] = ("y",)) -> None:
        self.output_names = names
        self._outputs = outputs

    def run(self, inputs: Any) -> Any:
        return self._outputs


class Computes:
    """A session that computes by a function of its inputs."""

    placement: Placement | None = HERE

    def __init__(self, function: Callable[..., Arrays], names: Sequence[str] = ("y",)) -> None:
        self.output_names = names
        self._function = function

    def run(self, inputs: Any) -> Any:
        return self._function(**inputs)
