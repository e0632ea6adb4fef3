"""The page shows the measured calls: one row for each operator without full support."""

from __future__ import annotations

import pytest

from benchmarks.operators.page import make_page, resolve_packet
from benchmarks.operators.results import (
    CallSupport,
    ColumnSupport,
    MeasuredOperator,
    OperatorMeasurement,
)
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page

COLUMNS = ("torchscript 18", "dynamo 18")
FULL = ColumnSupport(support=CallSupport.FULL, right=4)


def operator(name: str, torchscript: ColumnSupport, dynamo: ColumnSupport) -> MeasuredOperator:
    columns = dict(zip(COLUMNS, (torchscript, dynamo), strict=True))
    return MeasuredOperator(operator=f"aten::{name}", calls=4, columns=columns)


def failed(support: CallSupport, right: int = 0, reason: str = "", **texts: str) -> ColumnSupport:
    return ColumnSupport(support=support, right=right, reason=reason, **texts)


REFUSED = "Exporting the operator to ONNX opset version 18 is not supported"
MEASUREMENT = OperatorMeasurement(
    tools={"torch": "2.13.0"},
    columns=COLUMNS,
    functions=6,
    random=7,
    other=8,
    problems=("cov: crash: the process ended with -11",),
    operators=(
        operator("abs", FULL, FULL),
        operator("add", failed(CallSupport.PARTIAL, 3, "alpha=2", call="add(a|b)"), FULL),
        operator("airy_ai", *[failed(CallSupport.NONE, call="airy_ai(x)", message=REFUSED)] * 2),
        operator("cos", FULL, failed(CallSupport.NO_KERNEL, call="cos(x)", message="no Cos")),
        operator("std", failed(CallSupport.WRONG, 2, message="1, PyTorch has 2"), FULL),
    ),
)


USES = {"aten.add.Tensor": {"unet", "alexnet"}, "aten::abs_": {"unet"}, "mine::op": {"unet"}}


def test_the_page_has_rows_and_first_failed_calls() -> None:
    text = make_page(MEASUREMENT, USES)
    lines = text.splitlines()
    assert "20 calls of 5 ATen operators" in text
    assert "| support | torchscript 18 | dynamo 18 |" in lines
    assert {"| full | 2 | 3 |", "| wrong | 1 | 0 |", "| no kernel | 0 | 1 |"} <= set(lines)
    links = "[alexnet](models/alexnet.md), [unet](models/unet.md)"
    assert f"| `add` | partial, 3 of 4 right: alpha=2 | full | {links} |" in lines
    assert "| `airy_ai` | none | none |  |" in lines
    assert "| `std` | wrong, 2 of 4 right | full |  |" in lines
    assert "| `cos` | full | no kernel |  |" in lines
    assert "Full support in all columns: `abs`." in lines
    assert "| `cos` | dynamo 18 | `cos(x)` | no Cos |" in lines
    assert "| `abs` | [unet](models/unet.md) |" in lines
    assert "| `mine::op` | [unet](models/unet.md) |" in lines
    assert "Measured with torch 2.13.0." in lines
    assert any("cov: crash" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "packet"),
    [
        ("aten::add", "aten::add"),
        ("aten::add_", "aten::add"),
        ("aten.add.Tensor", "aten::add"),
        ("aten.add_.Tensor", "aten::add"),
        ("aten::_set_item_", "aten::_set_item_"),
        ("own.thing.default", "own::thing"),
    ],
)
def test_a_use_belongs_to_the_row_of_its_operator(name: str, packet: str) -> None:
    assert resolve_packet(name, {"aten::add", "aten::_set_item_"}) == packet


def test_equal_failures_of_several_columns_are_one_row() -> None:
    (row,) = [line for line in make_page(MEASUREMENT, {}).splitlines() if "`airy_ai(x)`" in line]
    assert row.startswith("| `airy_ai` | torchscript 18, dynamo 18 | ")
    assert row.endswith("to ONNX this opset version is not supported |")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_message_forges_nothing(text: str) -> None:
    hostile = failed(CallSupport.PARTIAL, 1, text, call=text, message=text)
    item = operator("add", hostile, FULL)
    measurement = MEASUREMENT.model_copy(update={"operators": (item,), "problems": (text,)})
    plain = MEASUREMENT.model_copy(update={"problems": ("",)})
    page = Page.of(make_page(measurement, {}))
    expected = Page.of(make_page(plain, {}))
    assert page.headings == expected.headings
    assert set(page.links) <= set(expected.links)
