"""The page shows the measured calls: one row for each operator without full support."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.tools.operator_calls.support_table import (
    CallSupport,
    ColumnSupport,
    MeasuredOperator,
    OperatorMeasurement,
)
from exporter.tools.operators.measured_view import view_measurement
from exporter.tools.operators.operators_page import render_operators
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page
from tests.unit.tools.operators.test_operators_page import MANIFEST, RUN, TABLE

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


def test_the_counts_are_complete() -> None:
    view = view_measurement(MEASUREMENT, known=6)
    assert view.counts == (
        ("full", (2, 3)),
        ("partial", (1, 0)),
        ("none", (1, 1)),
        ("wrong", (1, 0)),
        ("no kernel", (0, 1)),
    )
    assert (view.operators, view.unmeasured, view.calls) == (5, 1, 20)
    assert view.full == ("abs",)


def test_equal_failures_of_several_columns_are_one_row() -> None:
    view = view_measurement(MEASUREMENT, known=6)
    (row,) = [row for row in view.failures if row.operator == "airy_ai"]
    assert row.columns == "TorchScript 18, dynamo 18"
    assert row.message.endswith("to ONNX this opset version is not supported")


def test_the_page_has_rows_and_first_failed_calls(tmp_path: Path) -> None:
    text = render_operators(MANIFEST, TABLE, RUN, MEASUREMENT, tmp_path)
    lines = text.splitlines()
    assert "| support | TorchScript 18 | dynamo 18 |" in lines
    assert "| wrong | 1 | 0 |" in lines
    assert "| `add` | partial, 3 of 4 right: alpha=2 | full |" in lines
    assert "| `airy_ai` | none | none |" in lines
    assert "| `std` | wrong, 2 of 4 right | full |" in lines
    assert "| `cos` | full | no kernel |" in lines
    assert "Full support in all columns: `abs`." in lines
    assert "| `cos` | dynamo 18 | `cos(x)` | no Cos |" in lines
    assert "Measured with torch 2.13.0." in lines
    assert any("cov: crash" in line for line in lines)
    page = Page.of(text)
    assert "Measured calls" in page.headings


def test_without_a_measurement_the_page_has_no_such_section(tmp_path: Path) -> None:
    assert "Measured" not in render_operators(MANIFEST, TABLE, RUN, None, tmp_path)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_message_forges_nothing(text: str, tmp_path: Path) -> None:
    hostile = failed(CallSupport.PARTIAL, 1, text, call=text, message=text)
    item = operator("add", hostile, FULL)
    measurement = MEASUREMENT.model_copy(update={"operators": (item,), "problems": (text,)})
    plain = MEASUREMENT.model_copy(update={"problems": ("",)})
    page = Page.of(render_operators(MANIFEST, TABLE, RUN, measurement, tmp_path))
    expected = Page.of(render_operators(MANIFEST, TABLE, RUN, plain, tmp_path))
    assert page.headings == expected.headings
    assert set(page.links) <= set(expected.links)
