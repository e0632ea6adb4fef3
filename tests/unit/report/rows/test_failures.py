"""Reasons of failures, on the page and in the terminal."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from exporter.manifest import Device
from exporter.records.record import Blame, Culprit, Divergence, MissingOperator, Record, Stage
from exporter.report.pages.markdown import render_pages
from exporter.report.pages.templates import render_script
from exporter.report.rows.failure_reasons import describe_divergence, explain_failure
from exporter.report.rows.failures import (
    find_model_lines,
    find_repro_obstacle,
    format_repro_command,
    shorten_diff,
    split_message,
    summarize_failure,
)
from tests.unit.factory import make_manifest, make_record, make_run, make_spec
from tests.unit.report.rendering import Page

FIRST = Divergence(
    node="node_linear_5",
    operator="Gemm",
    output="linear_5",
    against="PyTorch",
    error_before=1.1e-7,
    error_after=0.0718,
    source="models/net.py:12",
)
BLAME = Blame(
    culprit=Culprit.EXPORTER, sample="batch=7", evidence=("onnx.reference: wrong",), first=FIRST
)
MISSING = (
    MissingOperator(
        operator="aten::foo", count=4, sources=("a.py:1", "a.py:2", "a.py:3", "a.py:9")
    ),
    MissingOperator(operator="aten::bar", count=1),
)


def fail_with_blame() -> Record:
    return make_record("alexnet/17/cpu", "fail", blame=BLAME, check="axes")


def test_the_first_node_has_stable_figures() -> None:
    text = "against PyTorch, ≤ 1e-6 before it and 0.072 of the scale after it"
    assert describe_divergence(FIRST) == f"Gemm node_linear_5 (models/net.py:12): {text}"
    vague = FIRST.model_copy(update={"suspects": 3, "source": "", "error_before": 0.0})
    assert describe_divergence(vague).startswith(
        "Gemm node_linear_5, or one of the 2 nodes before it: "
    )
    assert "no error before it" in describe_divergence(vague)
    shapeless = FIRST.model_copy(update={"error_after": math.inf})
    assert describe_divergence(shapeless).endswith("and a clearly different result after it")


def test_the_summary_is_one_line() -> None:
    assert (
        summarize_failure(fail_with_blame())
        == "fault: exporter, first at Gemm node_linear_5 (models/net.py:12)"
    )
    vague = BLAME.model_copy(update={"first": FIRST.model_copy(update={"suspects": 3})})
    assert summarize_failure(make_record("alexnet/17/cpu", "fail", blame=vague)).endswith(
        "node_linear_5 (models/net.py:12), or in the 2 nodes before it"
    )
    lacking = make_record("alexnet/17/cpu", "error", missing=MISSING)
    assert summarize_failure(lacking) == "missing: aten::foo x4, aten::bar x1"
    assert (
        summarize_failure(make_record("alexnet/17/cpu", "error", advice=("write 3",))) == "write 3"
    )
    assert summarize_failure(make_record("alexnet/17/cpu")) == ""


def test_constants_of_the_trace_come_before_the_first_node() -> None:
    notes = (
        "tracer warning: net.py:3: Converting a tensor to a Python integer",
        "tracer warning: net.py:3: Iterating over a tensor (2 times)",
        "another note",
    )
    traced = make_record("alexnet/17/cpu", "fail", blame=BLAME, notes=notes)
    assert summarize_failure(traced) == "fault: exporter, the trace made constants at net.py:3"
    assert find_model_lines(traced) == ("net.py:3", "models/net.py:12")
    file = BLAME.model_copy(update={"culprit": Culprit.FILE})
    damaged = make_record("alexnet/17/cpu", "fail", blame=file, notes=notes)
    assert "first at Gemm" in summarize_failure(damaged)
    assert find_model_lines(damaged) == ("models/net.py:12",)


def test_missing_operators_list_some_lines() -> None:
    reasons = explain_failure(make_record("alexnet/17/cpu", "error", missing=MISSING))
    assert [tuple(row.values()) for row in reasons["missing_operators"]] == [
        ("aten::foo", 4, "a.py:1, a.py:2, a.py:3 and 1 more"),
        ("aten::bar", 1, ""),
    ]


def test_the_model_page_shows_all_reasons() -> None:
    lacking = make_record("alexnet/18/cpu", "error", missing=MISSING, advice=("write 3 there",))
    pages = render_pages(make_manifest(make_spec()), make_run(fail_with_blame(), lacking))
    (page,) = [text for name, text in pages.items() if str(name).endswith("alexnet.md")]
    assert "Culprit: exporter, on the input set `batch=7`" in page
    assert "- first to differ: Gemm node_linear_5 (models/net.py:12): against" in page
    assert "- onnx.reference: wrong" in page
    assert "- advice: write 3 there" in page
    assert "- reproduce: `exporter repro alexnet/17/cpu`" in page
    rows = Page.of(page).rows
    assert ["aten::foo", "4", "a.py:1, a.py:2, a.py:3 and 1 more"] in rows


def blame(culprit: Culprit) -> Blame:
    return Blame(culprit=culprit, sample="batch=7", evidence=())


@pytest.mark.parametrize(
    ("status", "fields", "obstacle"),
    [
        (
            "error",
            {"stage": Stage.SOURCE, "message": "no file"},
            "fails before the export: no file",
        ),
        ("fail", {"stage": Stage.STRUCTURE, "route": None}, "was never exported"),
        ("fail", {"check": "axes", "blame": blame(Culprit.CONTRACT)}, "breaks the contract"),
        ("fail", {"check": "axes", "blame": blame(Culprit.MODEL)}, "differs from itself"),
        ("xfail", {"check": "axes", "blame": blame(Culprit.FILE)}, "a new export gives a right"),
        ("inconclusive", {"check": "axes"}, "the checks prove nothing"),
        ("fail", {"check": "placement"}, "a script cannot repeat the check 'placement'"),
        ("fail", {"check": "values"}, "did not occur again"),
        # Failures of the exporter or of the runtime.
        ("error", {"stage": Stage.CAPTURE}, ""),
        ("error", {"stage": Stage.CONVERT}, ""),
        ("fail", {"stage": Stage.STRUCTURE, "check": "signature"}, ""),
        ("error", {"stage": Stage.LOAD}, ""),
        ("crash", {"stage": Stage.PARITY}, ""),
        ("xfail", {"check": "axes", "blame": blame(Culprit.EXPORTER)}, ""),
    ],
)
def test_a_failure_has_either_an_obstacle_or_a_command(
    status: str, fields: dict[str, object], obstacle: str
) -> None:
    record = make_record("alexnet/17/cpu", status, **{"stage": Stage.PARITY, **fields})
    assert obstacle in find_repro_obstacle(record)
    assert bool(find_repro_obstacle(record)) is bool(obstacle)
    command = "" if obstacle else "exporter repro alexnet/17/cpu"
    assert format_repro_command(record) == command


def test_a_runtime_without_a_script_has_no_command() -> None:
    project = make_manifest(make_spec()).project
    web = Device(name="web", runtime="web")
    project = project.model_copy(update={"devices": (*project.devices, web)})
    shown = {
        device: format_repro_command(make_record(f"alexnet/17/{device}", "error"), project)
        for device in ("cpu", "web")
    }
    assert shown == {"cpu": "exporter repro alexnet/17/cpu", "web": ""}


def test_a_green_cell_has_neither() -> None:
    green = make_record("alexnet/17/cpu")
    assert (find_repro_obstacle(green), format_repro_command(green)) == ("", "")


@pytest.mark.parametrize(
    ("count", "rest"), [(12, ""), (13, "… and 1 more line"), (14, "… and 2 more lines")]
)
def test_the_rest_of_a_difference_is_counted(count: int, rest: str) -> None:
    diff = "\n".join(f"+line {number}" for number in range(count))
    assert shorten_diff(diff, 12).removeprefix("\n".join(diff.splitlines()[:12])).strip() == rest
    names = "subject title change is_improvement is_blocking cause message code fixes shown_by"
    names += " locations lines acceptance commands expectations edited owners models decision"
    row = SimpleNamespace(**dict.fromkeys(names.split(), ""), diff=diff)
    lines = render_script("gate.txt", rows=[row]).splitlines()
    assert [line.strip("| ") for line in lines if "more line" in line] == [rest] * bool(rest)


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("net.py:1: the file \"a\" does not exist; did you mean 'b'?", "did you mean 'b'?"),
        ("E: no; PyTorch accepts 'x' with shape = [4]", "PyTorch accepts 'x' with shape = [4]"),
        (
            "two; the entry has 1; add { name = 'y' } to `outputs`",
            "add { name = 'y' } to `outputs`",
        ),
        ("a; write 'b'; or remove it", "write 'b'; or remove it"),
        ("index out of range; the table has 5 rows", ""),
    ],
)
def test_a_message_about_the_source_ends_with_its_fix(message: str, fix: str) -> None:
    text = split_message(make_record("net/18/cpu", "error", stage=Stage.SOURCE, message=message))
    assert text.fixes == ((fix,) if fix else ())
    assert "; ".join((text.cause, *text.fixes)) == message
    text = split_message(make_record("net/18/cpu", "error", stage=Stage.CONVERT, message=message))
    assert text.cause == message
