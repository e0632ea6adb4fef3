"""The page of the operators: its rows, links and models."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.tools.operators.operators_page import build_page, render_operators, resolve_packet
from exporter.tools.operators.protocol import OperatorRow, OperatorTable
from tests.unit.factory import make_manifest, make_record, make_run, make_spec
from tests.unit.report.hostile_records import HOSTILE
from tests.unit.report.rendering import Page

ALL = tuple(range(18, 27))


def row(name: str, *overloads: str, **opsets: tuple[int, ...]) -> OperatorRow:
    return OperatorRow(operator=f"aten::{name}", overloads=overloads or ("default",), **opsets)


TABLE = OperatorTable(
    tools={"torch": "2.13.0", "onnxscript": "0.7.2"},
    torchscript=tuple(range(7, 21)),
    dynamo=ALL,
    rows=(
        row("_softmax", translated=ALL),
        row("add", "Scalar", "Tensor", torchscript=tuple(range(7, 21)), translated=ALL),
        row("airy_ai"),
        row("bessel_j0", unproved=ALL),
        row("rms_norm", translated=(23, 24, 25, 26), decomposed=(18, 19, 20, 21, 22)),
        row("where", "default", torchscript=(9, 10, 12), decomposed=ALL),
        row("where", "self", torchscript=(9, 10, 12), translated=ALL),
    ),
    folded=3,
)
MANIFEST = make_manifest(make_spec("a"), make_spec("b"), make_spec("c"))
RUN = make_run(
    make_record("a/17/cpu", torch_operators={"aten::add_": 2, "own::thing": 1}),
    make_record("a/18/cpu", torch_operators={"aten.add.Tensor": 2}),
    make_record("b/18/cpu", "error", torch_operators={"aten.airy_ai.default": 1}),
    make_record("c/18/cpu"),
)


def rows_of(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("| ")]


def test_each_row_has_its_opsets_and_models(tmp_path: Path) -> None:
    text = render_operators(MANIFEST, TABLE, RUN, None, tmp_path)
    lines = rows_of(text)
    assert "| `add` |  | 7..20 | 18..26 | [a](models/a.md) |" in lines
    assert "| `rms_norm` |  |  | 23..26; 18..22 by decomposition |  |" in lines
    assert "| `where` | default | 9..10, 12 | 18..26 by decomposition |  |" in lines
    assert "| `where` | self | 9..10, 12 | 18..26 |  |" in lines
    assert "| `bessel_j0` |  |  | 18..26 not proved |  |" in lines
    assert "| `airy_ai` |  | [b](models/b.md) |" in lines
    assert "| `own::thing` | [a](models/a.md) |" in lines
    assert text.startswith(
        "# Operators\n\nThe exporters of torch can convert 4 of 6 ATen operators"
    )
    assert "Models without an export: c." in text


def test_unsupported_operators_have_their_own_lists(tmp_path: Path) -> None:
    page = build_page(MANIFEST, TABLE, RUN)
    assert [(group.name, [view.operator for view in group.rows]) for group in page.groups] == [
        ("With an underscore", ["_softmax"]),
        ("A", ["add"]),
        ("R", ["rms_norm"]),
        ("W", ["where", "where"]),
    ]
    assert [view.operator for view in page.unproved] == ["bessel_j0"]
    assert [view.operator for view in page.unsupported] == ["airy_ai"]


def test_links_to_the_letters_lead_to_headings(tmp_path: Path) -> None:
    page = Page.of(render_operators(MANIFEST, TABLE, RUN, None, tmp_path))
    anchors = {heading.lower().replace(" ", "-") for heading in page.headings}
    inner = [link.removeprefix("#") for link in page.links if link.startswith("#")]
    assert inner
    assert set(inner) <= anchors


def test_without_results_no_model_is_named(tmp_path: Path) -> None:
    text = render_operators(MANIFEST, TABLE, make_run(), None, tmp_path)
    assert "Models without an export: a, b, c." in text
    assert "models/" not in text


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    again = make_run(*reversed(RUN.records))
    assert render_operators(MANIFEST, TABLE, RUN, None, tmp_path) == render_operators(
        MANIFEST, TABLE, again, None, tmp_path
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_the_name_of_a_custom_operator_forges_nothing(text: str, tmp_path: Path) -> None:
    run = make_run(make_record("a/17/cpu", torch_operators={f"own::{text}": 1}))
    page = Page.of(render_operators(MANIFEST, TABLE, run, None, tmp_path))
    plain = Page.of(render_operators(MANIFEST, TABLE, RUN, None, tmp_path))
    assert page.headings == plain.headings
    assert set(page.links) <= {*plain.links, "models/a.md"}
    assert page.html == plain.html


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
