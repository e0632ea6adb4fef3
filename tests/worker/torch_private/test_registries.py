"""The registries of torch agree with its exporters."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from exporter.tools.operators.child.table import (
    classify_for_dynamo,
    group_rows,
    select_plain_operators,
)
from exporter.worker.torch_private import guards
from exporter.worker.torch_private.registries import (
    DynamoRegistry,
    Operator,
    UnknownTorchVersion,
    is_refusal_stub,
    list_aten_operators,
    read_dynamo_registry,
    read_torchscript_opsets,
    require_known_torch,
    split_operator_name,
)

ATEN = torch.ops.aten


@pytest.fixture(scope="module")
def symbolic() -> dict[str, tuple[int, ...]]:
    return read_torchscript_opsets(range(7, 21))


@pytest.fixture(scope="module")
def registries() -> dict[int, DynamoRegistry]:
    return {opset: read_dynamo_registry(opset) for opset in (18, 23)}


class Calls(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "name", "opset"),
    [
        (torch.relu, "aten::relu", 7),
        (torch.erf, "aten::erf", 9),
        (torch.erf, "aten::erf", 8),
        (lambda x: x.expand(2, 3, 4), "aten::expand", 8),
        (lambda x: torch.all(x > 0, dim=0), "aten::all", 9),
        (torch.special.airy_ai, "aten::special_airy_ai", 20),
        (lambda x: torch.nn.functional.pad(x, (1, 1), "reflect"), "aten::pad", 9),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_torchscript_converts_listed_operators(
    symbolic: dict[str, tuple[int, ...]], function: Any, name: str, opset: int, tmp_path: Path
) -> None:
    listed = opset in symbolic.get(name, ())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Calls(function).eval(),
                (torch.ones(3, 4),),
                str(tmp_path / "a.onnx"),
                opset_version=opset,
                dynamo=False,
            )
        converts = True
    except torch.onnx.errors.OnnxExporterError:
        converts = False
    assert converts is listed


def test_operators_blocked_below_an_opset_are_not_listed(
    symbolic: dict[str, tuple[int, ...]],
) -> None:
    assert symbolic["aten::nonzero"] == tuple(range(9, 21))
    assert symbolic["aten::scaled_dot_product_attention"] == tuple(range(14, 21))
    assert symbolic["aten::__and__"] == tuple(range(7, 21))
    assert "aten::__and_" not in symbolic, "the internal name of the exporter"
    assert "aten::_unique" not in symbolic, "its function only rejects the operator"


def test_stub_is_a_function_that_always_rejects() -> None:
    assert not is_refusal_stub(lambda g, x: x)

    def helps(g: Any, x: Any) -> Any:
        if x:
            return _unimplemented("helps", "not that")
        return x

    def rejects(g: Any, x: Any) -> Any:
        return _unimplemented("rejects", "never")

    def returns_nothing(g: Any, x: Any) -> None:
        pass

    assert not is_refusal_stub(helps)
    assert is_refusal_stub(rejects)
    assert not is_refusal_stub(returns_nothing)


def _unimplemented(name: str, message: str) -> None:
    raise AssertionError


def test_every_aten_operator_is_listed_once() -> None:
    everything = list_aten_operators()
    assert len(everything) > 2000
    plain = select_plain_operators(everything)
    names = [split_operator_name(operator) for operator in plain]
    assert len(set(names)) == len(names)
    assert ("aten::add", "Tensor") in names
    assert ("aten::add", "out") not in names
    assert "aten::add_" not in {name for name, _ in names}
    assert "aten::__and__" in {name for name, _ in names}


def list_ways(registries: dict[int, DynamoRegistry], operator: Operator) -> tuple[list[int], ...]:
    packet, overload = split_operator_name(operator)
    way = classify_for_dynamo([operator], registries)[packet][overload]
    return way.translated, way.decomposed, way.unproved


@pytest.mark.parametrize(
    ("operator", "ways"),
    [
        (ATEN.add.Tensor, ([18, 23], [], [])),
        # Translated from 23 on; before, it becomes operators with a translation.
        (ATEN.rms_norm.default, ([23], [18], [])),
        (ATEN.squeeze.dims, ([], [18, 23], [])),
        (ATEN.nanmean.default, ([], [18, 23], [])),
        # It becomes `prims.bessel_j0`, which has no translation.
        (ATEN.special_bessel_j0.default, ([], [], [18, 23])),
        (ATEN.special_airy_ai.default, ([], [], [])),
        # torch.export computes it, so no operator remains. That is not a translation.
        (ATEN._debug_has_internal_overlap.default, ([], [], [18, 23])),
        # It returns its input, so no operator remains.
        (ATEN.positive.default, ([], [18, 23], [])),
        # It has a translation for complex numbers only.
        (ATEN._fft_c2c.default, ([], [], [])),
    ],
)
def test_dynamo_translates_decomposes_or_rejects(
    registries: dict[int, DynamoRegistry], operator: Operator, ways: tuple[list[int], ...]
) -> None:
    assert list_ways(registries, operator) == ways


@pytest.mark.parametrize(
    ("function", "converts"),
    [
        (lambda x: torch.squeeze(x, (0, 1)), True),
        (torch.nanmean, True),
        (torch.special.bessel_j0, False),
        (torch.special.airy_ai, False),
    ],
)
def test_export_agrees_with_the_table(function: Any, converts: bool) -> None:
    def export() -> Any:
        model = Calls(function).eval()
        return torch.onnx.export(
            model, (torch.ones(1, 1, 3),), dynamo=True, opset_version=18, verbose=False
        )

    if converts:
        assert export() is not None
    else:
        with pytest.raises(torch.onnx.OnnxExporterError):
            export()


def test_equal_overloads_share_a_row(registries: dict[int, DynamoRegistry]) -> None:
    packet = [op for op in list_aten_operators() if split_operator_name(op)[0] == "aten::add"]
    ways = classify_for_dynamo(select_plain_operators(packet), registries)
    (row,) = group_rows(ways, {"aten::add": (7, 8), "aten::tensor": (7,)})[:1]
    assert (row.operator, row.overloads) == ("aten::add", ("Scalar", "Tensor"))
    assert (row.torchscript, row.translated) == ((7, 8), (18, 23))
    last = group_rows(ways, {"aten::add": (7, 8), "aten::tensor": (7,)})[-1]
    assert (last.operator, last.torchscript, last.translated) == ("aten::tensor", (7,), ())


def test_other_torch_version_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    require_known_torch()
    monkeypatch.setattr(guards, "_TESTED", dict.fromkeys(guards._TESTED, ()))
    with pytest.raises(UnknownTorchVersion, match="are not known"):
        require_known_torch()
