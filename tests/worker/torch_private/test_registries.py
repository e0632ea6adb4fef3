"""What torch's registries say, held against what torch's exporters do."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from exporter.tools.operators.child.table import plain_operators, table_rows, under_dynamo
from exporter.worker.torch_private import capture_patches as torch_internals
from exporter.worker.torch_private.registries import (
    DynamoRegistry,
    Operator,
    UnknownTorchVersion,
    list_aten_operators,
    read_dynamo_registry,
    split_operator_name,
    is_refusal_stub,
    require_known_torch,
    read_torchscript_opsets,
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
def test_torchscript_converts_what_it_is_said_to(
    symbolic: dict[str, tuple[int, ...]], function: Any, name: str, opset: int, tmp_path: Path
) -> None:
    promised = opset in symbolic.get(name, ())
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
    assert converts is promised


def test_what_is_blocked_below_its_opset_is_not_promised(
    symbolic: dict[str, tuple[int, ...]],
) -> None:
    assert symbolic["aten::nonzero"] == tuple(range(9, 21))
    assert symbolic["aten::scaled_dot_product_attention"] == tuple(range(14, 21))
    assert symbolic["aten::__and__"] == tuple(range(7, 21))
    assert "aten::__and_" not in symbolic, "the name under which the exporter keeps it"
    assert "aten::_unique" not in symbolic, "its function does nothing but refuse"


def test_a_function_that_can_answer_does_not_refuse() -> None:
    assert not is_refusal_stub(lambda g, x: x)

    def helps(g: Any, x: Any) -> Any:
        if x:
            return _unimplemented("helps", "not that")
        return x

    def says_no(g: Any, x: Any) -> Any:
        return _unimplemented("says_no", "never")

    def says_nothing(g: Any, x: Any) -> None:
        pass

    assert not is_refusal_stub(helps)
    assert is_refusal_stub(says_no)
    assert not is_refusal_stub(says_nothing)


def _unimplemented(name: str, message: str) -> None:
    raise AssertionError


def test_every_aten_operator_is_listed_once_and_plain() -> None:
    everything = list_aten_operators()
    assert len(everything) > 2000
    plain = plain_operators(everything)
    names = [split_operator_name(operator) for operator in plain]
    assert len(set(names)) == len(names)
    assert ("aten::add", "Tensor") in names
    assert ("aten::add", "out") not in names
    assert "aten::add_" not in {name for name, _ in names}
    assert "aten::__and__" in {name for name, _ in names}


def ways_of(registries: dict[int, DynamoRegistry], operator: Operator) -> tuple[list[int], ...]:
    packet, overload = split_operator_name(operator)
    way = under_dynamo([operator], registries)[packet][overload]
    return way.translated, way.decomposed, way.apart


@pytest.mark.parametrize(
    ("operator", "ways"),
    [
        (ATEN.add.Tensor, ([18, 23], [], [])),
        # Translated from 23 on; before, it becomes operators with a translation.
        (ATEN.rms_norm.default, ([23], [18], [])),
        (ATEN.squeeze.dims, ([], [18, 23], [])),
        (ATEN.nanmean.default, ([], [18, 23], [])),
        # Becomes `prims.bessel_j0`, which nothing translates.
        (ATEN.special_bessel_j0.default, ([], [], [18, 23])),
        (ATEN.special_airy_ai.default, ([], [], [])),
        # Leaves nothing, since torch.export computes it: that is no translation.
        (ATEN._debug_has_internal_overlap.default, ([], [], [18, 23])),
        # Leaves nothing, since its tensor is the one that it was given.
        (ATEN.positive.default, ([], [18, 23], [])),
        # Has a translation for complex numbers alone.
        (ATEN._fft_c2c.default, ([], [], [])),
    ],
)
def test_dynamo_has_a_translation_takes_apart_or_has_nothing(
    registries: dict[int, DynamoRegistry], operator: Operator, ways: tuple[list[int], ...]
) -> None:
    assert ways_of(registries, operator) == ways


@pytest.mark.parametrize(
    ("function", "converts"),
    [
        (lambda x: torch.squeeze(x, (0, 1)), True),
        (torch.nanmean, True),
        (torch.special.bessel_j0, False),
        (torch.special.airy_ai, False),
    ],
)
def test_dynamo_does_what_the_rows_above_say(function: Any, converts: bool) -> None:
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


def test_overloads_that_are_alike_share_a_row(registries: dict[int, DynamoRegistry]) -> None:
    packet = [op for op in list_aten_operators() if split_operator_name(op)[0] == "aten::add"]
    ways = under_dynamo(plain_operators(packet), registries)
    (row,) = table_rows(ways, {"aten::add": (7, 8), "aten::tensor": (7,)})[:1]
    assert (row.operator, row.overloads) == ("aten::add", ("Scalar", "Tensor"))
    assert (row.torchscript, row.translated) == ((7, 8), (18, 23))
    last = table_rows(ways, {"aten::add": (7, 8), "aten::tensor": (7,)})[-1]
    assert (last.operator, last.torchscript, last.translated) == ("aten::tensor", (7,), ())


def test_another_torch_is_not_spoken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    require_known_torch()
    monkeypatch.setattr(torch_internals, "_KNOWN", ())
    with pytest.raises(UnknownTorchVersion, match="are not known"):
        require_known_torch()
