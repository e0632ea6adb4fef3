"""Small files with their contracts and with PyTorch's outputs.

The model of most tests is `y = x * 2 + b` over an axis. It is text in ONNX's own syntax, which a
test can change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import parser

from exporter.checks.protocol import CheckedFile, write_sample
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import Axis, Input, ModelSpec, Output
from exporter.runtimes import Placement
from exporter.runtimes.session import OnnxValue
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
    """Return the contract of `DOUBLE` with other `fields`."""
    defaults: dict[str, Any] = {"inputs": (X,), "outputs": (Y,), "axes": (BATCH,)}
    return make_spec("double", **{**defaults, **fields})


def shapes(text: str) -> tuple[int | str, ...]:
    """Parse a shape such as `"batch, 3"`."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(int(word) if word.isdigit() else word for word in words)


def value(cls: type[Any], name: str, shape: str, dtype: str = "float32", **fields: Any) -> Any:
    path = {"at": f"kwargs.{name}"} if cls is Input else {}
    return cls(name=name, shape=shapes(shape), dtype=dtype, **path, **fields)


def make_subject(
    folder: Path,
    model: str | onnx.ModelProto = DOUBLE,
    *,
    spec: ModelSpec | None = None,
    opset: int = 18,
    reference: Reference | None = None,
) -> CheckedFile:
    """Write the file and return it with a contract."""
    if isinstance(model, str):
        model = parser.parse_model(model)
    subject = CheckedFile(
        folder=JobFolder(folder),
        opset=opset,
        spec=spec or contract(),
        reference=reference or make_reference(),
    )
    onnx.save(model, subject.path)
    return subject


def make_reference(*samples: Sample, outputs: int = 1, **fields: Any) -> Reference:
    """Return a stable reference with outputs that change, without float64."""
    defaults: dict[str, Any] = {
        "samples": samples,
        "noise": (None,) * outputs,
        "output_spread": (1.0,) * outputs,
    }
    return Reference(**{**defaults, **fields})


def draw(batch: int, seed: int = 0) -> Array:
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
    """Return inputs and outputs of `DOUBLE`."""
    x = draw(batch, seed)
    return [x], [x * np.float32(2)]


def declared(folder: Path, **fields: Any) -> Sample:
    return write(folder, 0, *doubled(2), **fields)


def at(folder: Path, index: int, batch: int) -> Sample:
    inputs, outputs = doubled(batch, index)
    name = f"batch={batch}"
    return write(folder, index, inputs, outputs, axes={"batch": batch}, name=name, kind="axis")


def subject(folder: Path, *samples: Sample, **fields: Any) -> CheckedFile:
    """Return `DOUBLE` with these samples and fields of the contract."""
    return make_subject(folder, spec=contract(**fields), reference=make_reference(*samples))


def as_kind(sample: Sample, kind: str, name: str) -> Sample:
    return sample.model_copy(update={"kind": kind, "name": name})


def axes_of(*wrong: int) -> Callable[[Any], Any]:
    """Return a function that doubles, except at these batch sizes."""
    return lambda x: [x * np.float32(3 if len(x) in wrong else 2)]


PLACEMENT = Placement(requested="here", nodes={"here": {"Mul": 1}})


class ConstantSession:
    """A session that returns fixed outputs for all inputs."""

    placement: Placement | None = PLACEMENT

    def __init__(self, *outputs: object, names: Sequence[str] = ("y",)) -> None:
        self.output_names = names
        self._outputs = outputs

    def run(self, inputs: Any) -> Any:
        return self._outputs


class FunctionSession:
    """A session that computes by a function of its inputs."""

    placement: Placement | None = PLACEMENT

    def __init__(self, function: Callable[..., Arrays], names: Sequence[str] = ("y",)) -> None:
        self.output_names = names
        self._function = function

    def run(self, inputs: Any) -> Any:
        return self._function(**inputs)
