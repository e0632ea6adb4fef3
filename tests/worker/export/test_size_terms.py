"""Terms of sizes in the notation of torch, and their comparison with declared sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from exporter.manifest import Axis, ModelSpec
from exporter.manifest.resolved.call import SizeRule
from exporter.worker.export.attempts import _make_hints
from exporter.worker.export.size_terms import equals_declared_size, parse_term
from tests.worker.contracts import declare_input, declare_output, make_contract
from tests.worker.export.test_export import export, signature

_SYMBOLS = {"s0": ("batch", 1), "s1": ("seq", 1), "s2": ("past", 1), "s8": ("width", 8)}


def _equals(text: str, declared: int | str, **seq: int) -> bool:
    axes = (
        Axis(name="batch", example=3),
        Axis.model_validate({"name": "seq", "example": 5} | seq),
        Axis(name="past", example=7, min=0),
        Axis(name="width", example=24, multiple_of=8),
        Axis(name="total", example=12, rule=SizeRule(kind="sum", operands=("past", "seq"))),
        Axis(name="room", example=12, max=20, rule=SizeRule(kind="sum", operands=("past", "seq"))),
    )
    return equals_declared_size(text, declared, _SYMBOLS, make_contract("Affine", axes=axes))


@pytest.mark.parametrize(
    ("text", "declared", "limits"),
    [
        ("2*Min(4, s1)", 8, {"min": 4}),
        ("((s0*Min(64, s1))//s1)", "batch", {"max": 64}),
        ("s1 + s2", "total", {}),
        ("Max(1, s1)", "seq", {}),
        ("CeilToInt(IntTrueDiv(s1, 1))", "seq", {}),
        ("s1 + Mod(s1, 8)", "seq", {"multiple_of": 8, "example": 16}),
        ("8*s8", "width", {}),
        ("s1**2//s1", "seq", {}),
        # The limit of a sum is a limit of both of its axes.
        ("Min(20, s1 + s2)", "total", {}),
    ],
)
def test_equal_for_all_promised_sizes(
    text: str, declared: int | str, limits: dict[str, int]
) -> None:
    assert _equals(text, declared, **limits)


@pytest.mark.parametrize(
    ("text", "declared", "limits"),
    [
        ("2*Min(4, s1)", 8, {"min": 3}),
        ("((s0*Min(64, s1))//s1)", "batch", {"max": 65}),
        ("((s0*Min(64, s1))//s1)", "batch", {}),
        ("s1 + s2", "seq", {}),
        ("s0", 3, {}),
        ("s1 + Mod(s1, 7)", "seq", {"multiple_of": 8, "example": 16}),
        ("Min(19, s1 + s2)", "total", {}),
        ("Min(50000, s1)", "seq", {}),
        ("Max(2, s1)", "seq", {}),
        ("8*s8", "unknown", {}),
        ("u0", 4, {}),
        ("s1//(s1 - s1)", 4, {}),
        ("import os", 4, {}),
        ("sorted(s1)", 4, {}),
        ("s1.real", "seq", {}),
        ("s1**s1", "seq", {}),
    ],
)
def test_unequal_or_unknown(text: str, declared: int | str, limits: dict[str, int]) -> None:
    assert not _equals(text, declared, **limits)


def test_functions_are_no_symbols() -> None:
    term = parse_term("Min(4, s0) + 3*u1")
    assert term is not None
    assert (term.symbols, term.constants) == ({"s0", "u1"}, {3, 4})


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("(s0 % 8) != 0", {"s0": 3}, {"s0": 16}),
        ("s0 == s1", {"s0": 3, "s1": 3}, {"s0": 3, "s1": 4}),
        ("3 <= s0 or s1 == 1", {"s0": 2, "s1": 1}, {"s0": 2, "s1": 2}),
        ("not (s0 < 4 and s0 > 1)", {"s0": 4}, {"s0": 3}),
        ("1 < max(1, 1 + (((-3) + s0) // 2))*s1", {"s0": 9, "s1": 1}, {"s0": 3, "s1": 1}),
        ("math.trunc(torch.sym_float(s0) ** 0.5) == 1", {"s0": 3}, {"s0": 4}),
        ("math.log2(torch.sym_float(s0)) < 3", {"s0": 7}, {"s0": 8}),
        ("round(s0 / 10) < 3", {"s0": 25}, {"s0": 26}),
        ("(s0 & 8) == 0", {"s0": 7}, {"s0": 9}),
    ],
)
def test_a_condition_is_true_or_false(
    text: str, true: dict[str, int], false: dict[str, int]
) -> None:
    condition = parse_term(text)
    assert condition is not None
    assert condition.symbols == true.keys()
    assert condition.evaluate(true)
    assert not condition.evaluate(false)


@pytest.mark.parametrize(
    "text",
    ["", "f(s0)", "s0 <", "s0[0]", "s0.x < 3", "'a'", "~(s0 < 4)", "math.nothing(s0)", "open('a')"],
)
def test_an_unknown_notation_is_no_term(text: str) -> None:
    assert parse_term(text) is None


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
