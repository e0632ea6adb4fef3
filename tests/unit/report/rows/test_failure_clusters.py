"""Equal failures of many models are one cluster; different failures are not."""

from __future__ import annotations

import pytest

from exporter.manifest import Input, Manifest, Output
from exporter.records.baseline import make_baseline
from exporter.records.record import (
    Blame,
    Culprit,
    Divergence,
    MissingOperator,
    Record,
)
from exporter.report.pages.markdown import render_pages
from exporter.report.rows.cells import AcceptanceHistory, Row, collect_cells
from exporter.report.rows.failure_clusters import cluster_cells
from tests.unit.factory import make_manifest, make_record, make_run, make_spec
from tests.unit.report.rendering import Page

OPSETS = (9, 10, 17, 18)


def project(*ids: str) -> Manifest:
    return make_manifest(
        *(
            make_spec(
                id,
                opsets=OPSETS,
                source=f"models/{id}.py:{id.title()}",
                inputs=(Input(name=f"{id}_in", shape=(1,), at="args[0]"),),
                outputs=(Output(name=f"{id}_out", shape=(1,)),),
            )
            for id in ids
        )
    )


def clusters(*records: Record) -> tuple[Row, ...]:
    manifest = project(*dict.fromkeys(record.cell.model for record in records))
    cells = collect_cells(manifest, make_run(*records)).values()
    return cluster_cells((cell for each in cells for cell in each if cell.record), manifest)


def fail(cell: str, message: str) -> Record:
    return make_record(cell, "fail", message=message)


def fail_without(cell: str, *operators: str) -> Record:
    missing = tuple(MissingOperator(operator=name, count=1) for name in operators)
    return make_record(cell, "error", message=f"no {operators[0]}", missing=missing)


def fail_with_blame(cell: str, operator: str, culprit: Culprit = Culprit.KERNEL) -> Record:
    first = Divergence(
        node="n",
        operator=operator,
        output="o",
        against="PyTorch",
        error_before=0.0,
        error_after=1.0,
    )
    blame = Blame(culprit=culprit, sample="s", evidence=(), first=first)
    return make_record(cell, "fail", message="off by 0.1", blame=blame)


def test_a_missing_operator_is_one_cluster_and_the_largest_is_first() -> None:
    rare, common = clusters(
        fail_without("a/9/cpu", "aten::rare"),
        *(fail_without(f"{model}/{opset}/cpu", "aten::foo") for model in "bc" for opset in (9, 10)),
    )[::-1]
    affected = common["affected"]
    assert (common["operator"], affected["cells"], affected["models"]) == ("aten::foo", 4, 2)
    assert affected["labels"] == ("b/9..10/cpu", "c/9..10/cpu")
    assert common["reason"] == "TorchScript has no translation of aten::foo at this opset"
    assert (rare["operator"], rare["affected"]["labels"]) == ("aten::rare", ("a/9/cpu",))


def test_a_cell_with_two_missing_operators_is_in_both_clusters() -> None:
    first, second = clusters(
        fail_without("a/9/cpu", "x::a", "x::b"), fail_without("b/9/cpu", "x::b")
    )
    assert (first["operator"], first["affected"]["cells"]) == ("x::b", 2)
    assert (second["operator"], second["affected"]["cells"]) == ("x::a", 1)


@pytest.mark.parametrize(
    "message",
    [
        "output '{id}_out' has shape [{n}, 2], declared [1, 2]",
        "models/{id}.py:{Id} gave a {Id}, expected a torch.nn.Module",
        "{id} took {n} seconds",
        "no kernel for Foo, node /{id}/layer{n}/conv/Conv_{n}",
        "input '{id}_in' is off by {n}",
    ],
)
def test_names_of_a_model_do_not_distinguish_failures(message: str) -> None:
    messages = [message.format(id=id, Id=id.title(), n=n) for id, n in (("alex", 3), ("bert", 40))]
    (cluster,) = clusters(fail("alex/9/cpu", messages[0]), fail("bert/9/cpu", messages[1]))
    assert cluster["affected"]["labels"] == ("alex/9/cpu", "bert/9/cpu")
    assert cluster["reason"].startswith(messages[0])
    assert cluster["reason"].endswith("(text of alex/9/cpu)")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (fail("a/9/cpu", "no kernel for Foo"), fail("b/9/cpu", "no kernel for Bar")),
        (fail("a/9/cpu", "no kernel for '/a/Conv'"), fail("b/9/cpu", "no kernel for '/a/Relu'")),
        (fail("a/9/cpu", "shapes differ"), fail("b/9/cpu", "dtypes differ")),
        (fail("a/9/cpu", "input 'a_in' is wrong"), fail("b/9/cpu", "output 'b_out' is wrong")),
        (fail_without("a/9/cpu", "x::a"), fail_without("a/18/cpu", "x::a")),  # other exporters
        (make_record("a/9/cpu", "crash"), make_record("b/9/cpu", "timeout")),
    ],
)
def test_different_failures_are_different_clusters(one: Record, other: Record) -> None:
    assert len(clusters(one, other)) == 2


def test_operator_and_culprit_distinguish_failures() -> None:
    results = clusters(
        fail_with_blame("a/9/cpu", "Gemm"),
        fail_with_blame("b/9/cpu", "Gemm"),
        fail_with_blame("b/10/cpu", "Conv"),
        fail_with_blame("b/17/cpu", "Gemm", Culprit.EXPORTER),
    )
    assert [(each["operator"], each["affected"]["cells"]) for each in results] == [
        ("Gemm", 2),
        ("Conv", 1),
        ("Gemm", 1),
    ]


def test_further_labels_are_counted() -> None:
    (cluster,) = clusters(*(make_record(f"m{n:02}/9/cpu", "crash") for n in range(30)))
    affected = cluster["affected"]
    assert (affected["cells"], len(affected["labels"]), affected["more"]) == (30, 12, 18)


def test_red_cells_have_one_line_each_below_the_table() -> None:
    records = [fail_without(f"{model}/9/cpu", "aten::foo") for model in "abc"]
    page = Page.of(render_pages(project("a", "b", "c"), make_run(*records))["COMPATIBILITY.md"])
    assert page.headings[:4] == [
        "Compatibility",
        "Models",
        "Red cells",
        "🟥 error at convert: 3 cells of 3 models",
    ]
    assert "Red cells: 3." in page.paragraphs
    (row,) = [row for row in page.rows if row[0] == "🟥"]
    assert row[1:3] == ["a/9/cpu, b/9/cpu, c/9/cpu", "error at convert"]
    assert "operator: aten::foo" in page.paragraphs
    assert "reproduce: exporter repro a/9/cpu" in page.paragraphs


def test_new_failures_are_before_larger_groups() -> None:
    old = [fail_without(f"{model}/9/cpu", "aten::foo") for model in "abc"]
    new = fail_without("d/9/cpu", "aten::bar")
    accepted = make_baseline(make_run(*old, make_record("d/9/cpu")))
    manifest = project("a", "b", "c", "d")
    by_model = collect_cells(manifest, make_run(*old, new))
    red = [cell for cells in by_model.values() for cell in cells if cell.is_red]
    first, second = cluster_cells(red, manifest, AcceptanceHistory(accepted))
    assert (first["cell"], first["is_new"], second["is_new"]) == ("d/9/cpu", True, False)
    assert [cluster["cell"] for cluster in cluster_cells(red, manifest)] == ["a/9/cpu", "d/9/cpu"]
