"""Alike failures of many models stand once; other ones stay apart."""

from __future__ import annotations

import pytest

from exporter.gate import compare_results
from exporter.manifest import Input, Manifest, Output
from exporter.records.baseline import Baseline
from exporter.records.record import (
    Blame,
    Culprit,
    Divergence,
    MissingOperator,
    Record,
)
from exporter.report import render_gate, render_pages
from exporter.report.rows.cells import collect_cells
from exporter.report.rows.failure_clusters import Cluster, cluster_cells, cluster_findings
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


def clusters(*records: Record) -> tuple[Cluster, ...]:
    manifest = project(*dict.fromkeys(record.cell.model for record in records))
    cells = collect_cells(manifest, make_run(*records)).values()
    return cluster_cells((cell for of in cells for cell in of if cell.record), manifest)


def lacking(cell: str, *operators: str) -> Record:
    missing = tuple(MissingOperator(operator=name, count=1) for name in operators)
    return make_record(cell, "error", message=f"no {operators[0]}", missing=missing)


def blamed(cell: str, operator: str, culprit: Culprit = Culprit.KERNEL) -> Record:
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


def test_the_same_missing_operator_stands_once_and_first_where_it_hits_most() -> None:
    rare, common = clusters(
        lacking("a/9/cpu", "aten::rare"),
        *(lacking(f"{model}/{opset}/cpu", "aten::foo") for model in "bc" for opset in (9, 10)),
    )[::-1]
    assert (common.operator, common.hit.cells, common.hit.models) == ("aten::foo", 4, 2)
    assert common.hit.labels == ("b/9-10/cpu", "c/9-10/cpu")
    assert common.why == "TorchScript has no translation of aten::foo at this opset"
    assert (rare.operator, rare.hit.labels) == ("aten::rare", ("a/9/cpu",))


def test_a_cell_that_lacks_two_operators_counts_for_both() -> None:
    first, second = clusters(lacking("a/9/cpu", "x::a", "x::b"), lacking("b/9/cpu", "x::b"))
    assert (first.operator, first.hit.cells) == ("x::b", 2)
    assert (second.operator, second.hit.cells) == ("x::a", 1)


def test_the_exporter_that_lacks_it_tells_failures_apart() -> None:
    assert len(clusters(lacking("a/9/cpu", "x::a"), lacking("a/18/cpu", "x::a"))) == 2


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
def test_the_own_words_of_a_model_make_no_other_failure(message: str) -> None:
    said = [message.format(id=id, Id=id.title(), n=n) for id, n in (("alex", 3), ("bert", 40))]
    (cluster,) = clusters(
        make_record("alex/9/cpu", "fail", message=said[0]),
        make_record("bert/9/cpu", "fail", message=said[1]),
    )
    assert cluster.hit.labels == ("alex/9/cpu", "bert/9/cpu")
    assert cluster.why.startswith(said[0])
    assert cluster.why.endswith("(as alex/9/cpu says it)")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no kernel for Foo", "no kernel for Bar"),
        ("no kernel for '/a/Conv'", "no kernel for '/a/Relu'"),
        ("shapes differ", "dtypes differ"),
        ("input 'a_in' is wrong", "output 'b_out' is wrong"),
    ],
)
def test_another_failure_is_one(one: str, other: str) -> None:
    records = [make_record("a/9/cpu", "fail", message=one)]
    records.append(make_record("b/9/cpu", "fail", message=other))
    assert len(clusters(*records)) == 2


def test_the_first_operator_to_differ_and_the_culprit_tell_failures_apart() -> None:
    found = clusters(
        blamed("a/9/cpu", "Gemm"),
        blamed("b/9/cpu", "Gemm"),
        blamed("b/10/cpu", "Conv"),
        blamed("b/17/cpu", "Gemm", Culprit.EXPORTER),
    )
    assert [(each.operator, each.hit.cells) for each in found] == [
        ("Gemm", 2),
        ("Conv", 1),
        ("Gemm", 1),
    ]


def test_another_outcome_is_another_cluster() -> None:
    assert len(clusters(make_record("a/9/cpu", "crash"), make_record("b/9/cpu", "timeout"))) == 2


def test_many_labels_are_counted() -> None:
    (cluster,) = clusters(*(make_record(f"m{n:02}/9/cpu", "crash") for n in range(30)))
    assert (cluster.hit.cells, len(cluster.hit.labels), cluster.hit.more) == (30, 12, 18)


def test_what_is_red_stands_on_top_of_the_overview() -> None:
    records = [lacking(f"{model}/9/cpu", "aten::foo") for model in "abc"]
    page = Page.of(render_pages(project("a", "b", "c"), make_run(*records))["COMPATIBILITY.md"])
    assert page.headings[:3] == ["Compatibility", "What is red, and why", "On cpu"]
    assert page.rows[1][1:5] == ["3", "3", "error at convert", "aten::foo"]
    assert page.rows[1][6] == "a/9/cpu, b/9/cpu, c/9/cpu"


def test_findings_of_many_models_stand_once_the_worst_first() -> None:
    records = [
        make_record(f"{model}/9/cpu", "error", message=f"{model} lacks Foo") for model in "ab"
    ]
    records += [make_record(f"{model}/10/cpu") for model in "abcde"]
    run = make_run(*records)
    findings = compare_results(Baseline(tools={}, cells=()), run, run.by_cell())
    red, green = cluster_findings(findings)
    assert (red.hit.labels, red.hit.cells) == (("a/9/cpu", "b/9/cpu"), 2)
    assert green.hit.cells == 5
    page = Page.of(render_gate(findings))
    assert page.rows[1] == [
        "2", "new cell, red", "not in the baseline", "error at convert", "a lacks Foo",
        "a/9/cpu, b/9/cpu",
    ]  # fmt: skip
