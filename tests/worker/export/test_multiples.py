"""An axis of multiples is captured as one axis with its own name in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from exporter.manifest import Axis, ModelSpec
from exporter.worker.export.capture import _make_hints
from tests.worker.contracts import declare_input, declare_output, make_contract
from tests.worker.export.test_export import export, signature


def patches(**axis: int) -> ModelSpec:
    return make_contract(
        "Patches",
        inputs=(declare_input("x", "batch", "width"),),
        outputs=(declare_output("y", "batch", "width"), declare_output("sums", "batch", "patches")),
        axes=(
            Axis(name="batch", example=3),
            Axis(name="width", **axis),
            Axis(name="patches", example=None),
        ),
    )


@pytest.mark.parametrize("limits", [{}, {"min": 16, "max": 800}])
def test_axis_keeps_its_name_and_accepts_other_multiples(
    limits: dict[str, int], tmp_path: Path
) -> None:
    spec = patches(example=40, multiple_of=8, **limits)
    path = export(spec, tmp_path, 18, dynamo=True)
    assert signature(path) == (
        [("x", ["batch", "width"])],
        [("y", ["batch", "width"]), ("sums", ["batch", "patches"])],
    )
    session = onnxruntime.InferenceSession(str(path))
    x = np.arange(2 * 64, dtype=np.float32).reshape(2, 64)
    doubled, sums = session.run(None, {"x": x})
    assert np.array_equal(doubled, x * 2)
    assert np.allclose(sums, x.reshape(2, 8, 8).sum(-1))


def test_symbol_of_the_factor_is_a_part_of_the_axis(tmp_path: Path) -> None:
    # Declared as one axis, but shorter in the file. The signature check reports this name.
    spec = patches(example=40, multiple_of=8)
    outputs = (declare_output("y", "batch", "width"), declare_output("sums", "batch", "width"))
    spec = spec.model_copy(update={"outputs": outputs, "axes": spec.axes[:2]})
    path = export(spec, tmp_path, 18, dynamo=True)
    assert signature(path)[1] == [("y", ["batch", "width"]), ("sums", ["batch", "(width//8)"])]


@pytest.mark.parametrize(
    ("axis", "hint"),
    [
        ({"example": 40, "multiple_of": 8}, "8*_factor1"),
        ({"example": 40}, "DimHint(DYNAMIC)"),
        ({"example": 8, "multiple_of": 8}, "DimHint(DYNAMIC)"),
    ],
)
def test_hint_for_torch_has_the_multiple(axis: dict[str, int], hint: str) -> None:
    spec = patches(**axis)
    assert str(_make_hints(spec.inputs[0], spec)[1]) == hint


def test_example_of_one_multiple_is_captured_as_dynamic(tmp_path: Path) -> None:
    spec = make_contract("Affine", axes=(Axis(name="batch", example=8, multiple_of=8),))
    assert signature(export(spec, tmp_path, 18, dynamo=True))[0] == [("x", ["batch", 4])]
