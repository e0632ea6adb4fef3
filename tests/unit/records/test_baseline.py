"""The baseline: canonical JSON, one line per cell, strict reading."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.commands.report_command import build_trend
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import CELL_LIMIT
from exporter.core.git import Commit
from exporter.records.baseline import (
    AcceptedModel,
    Baseline,
    build_baseline,
    extract_outcome,
    extract_outcomes,
    make_baseline,
    parse_cell,
    read_baseline,
    write_baseline,
)
from exporter.records.record import CellId, CheckResult, Record, Status
from exporter.report.pages.index_page import build_index_data
from exporter.report.pages.markdown import render_pages
from exporter.report.pages.model_page import list_steps
from exporter.report.rows.cells import AcceptanceHistory, collect_cells
from exporter.report.site import render_site_files
from tests.integration.project import run_git
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec

RECORDS = [
    make_record("alexnet/18/cpu"),
    make_record("alexnet/9/cpu", "error", check=None, message="at 0x7f, 0.0001 off"),
    make_record("alexnet/10/cpu", "fail", check="axes"),
    make_record("bert/18/cuda", "unavailable", seconds={"load": 1.5}, log="bert/logs/18.log"),
    make_record("bert/18/cpu", "skip"),
]
TRACED = '"exporter": "torchscript", "capture": "trace"'
#: The end of the line of a cell that has a file.
FIGURES = '"figures": {"bytes": 1234, "nodes": 2, "ir_version": 10}}'


@given(st.permutations(RECORDS))
def test_the_same_records_give_the_same_bytes(records: list[Record]) -> None:
    first, second = (make_baseline(make_run(*each)).models for each in (records, RECORDS))
    assert [each.to_json() for each in first.values()] == [
        each.to_json() for each in second.values()
    ]


def test_there_is_one_sorted_line_per_cell_without_machine_details() -> None:
    models = make_baseline(make_run(*RECORDS)).models
    assert [*models] == ["alexnet", "bert"]
    lines = [line for each in models.values() for line in each.to_json().splitlines()]
    # Split at commas, because the lines are too long for this file.
    cells = [line.strip().removesuffix(",").split(", ") for line in lines if '"cell"' in line]
    assert [", ".join(cell[:2]) for cell in cells] == [
        '{"cell": "alexnet/9/cpu", "status": "error"',
        '{"cell": "alexnet/10/cpu", "status": "fail"',
        '{"cell": "alexnet/18/cpu", "status": "pass"',
        '{"cell": "bert/18/cpu", "status": "skip"}',
        '{"cell": "bert/18/cuda", "status": "unavailable"',
    ]
    assert [", ".join(cell[2:]) for cell in cells] == [
        f'"stage": "convert", {TRACED}}}',
        f'"stage": "parity", "check": "axes", {TRACED}, {FIGURES}',
        f'"exporter": "dynamo", "capture": "export", {FIGURES}',
        "",
        '"stage": "load", "exporter": "dynamo", "capture": "export"}',
    ]
    assert '    "torch": "2.13.0"' in lines


def test_a_written_baseline_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "reports/baseline"
    contract = {"seed": 7, "axis batch": {"max": 8}, "init": {"x": [1, 1.0, True, None]}}
    state = AcceptedModel(tools={"torch": "2.13.0"}, weights="initial", contract=contract, cells=())
    dropped = {parse_cell("gone/9/cpu"): "history"}
    cells = make_baseline(make_run(*RECORDS)).cells
    baseline = build_baseline(cells, lambda _: state, dropped)
    write_baseline(path, baseline)
    assert read_baseline(path) == baseline
    assert sorted(each.name for each in path.iterdir()) == [
        "alexnet.json",
        "bert.json",
        "gone.json",
    ]
    assert json.loads((path / "bert.json").read_text())["format"] == 4
    write_baseline(path, build_baseline(cells[:1], lambda _: state))
    assert [each.name for each in path.iterdir()] == ["alexnet.json"]


@pytest.mark.parametrize("records", [[], RECORDS[:1]])
def test_an_empty_baseline_is_read_back(records: list[Record], tmp_path: Path) -> None:
    baseline = make_baseline(make_run(*records, tools={}))
    write_baseline(tmp_path / "b.json", baseline)
    assert read_baseline(tmp_path / "b.json") == baseline


def test_a_missing_baseline_is_red_and_the_message_has_the_command(tmp_path: Path) -> None:
    with pytest.raises(ExporterError, match="no baseline yet; run `exporter baseline`") as caught:
        read_baseline(tmp_path / "baseline.json")
    assert caught.value.exit_code is ExitCode.RED


CELL = '{"cell": "a/9/cpu", "status": "pass"}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            f'{{"format": 4, "tools": {{}}, "cells": [{CELL}]}}',
            "has cells of a; a file has one model",
        ),
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "object"),
        ("[" * 100_000, "recursion|EOF"),
        ("\ufffe", "JSON"),
        (
            '{"format": 5, "tools": {}, "cells": []}',
            "delete it and run `.*format: Input should be 4",
        ),
        (
            '{"format": 3, "tools": {}, "cells": []}',
            "format 4; delete it and run `exporter baseline`",
        ),
        ('{"format": 4, "tools": {}}', "cells: Field required"),
        ('{"format": 4, "tools": {}, "cells": [], "more": 1}', "more: Extra inputs"),
        (f'{{"format": 4, "tools": {{}}, "cells": [{CELL}, {CELL}]}}', "the cell a/9/cpu twice"),
        (
            '{"format": 4, "tools": {}, "cells": [{"cell": "a/9", "status": "pass"}]}',
            "cells.0.cell",
        ),
        ('{"format": 4, "tools": {}, "cells": [{"cell": "a/09/c", "status": "pass"}]}', "a/09/c"),
        ('{"format": 4, "tools": {}, "cells": [{"cell": "a/9/c", "status": "green"}]}', "status"),
        ('{"format": 4,\n<<<<<<< HEAD\n"tools": {}, "cells": []}', "merge conflict"),
    ],
)
def test_a_damaged_baseline_is_an_error(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ExporterError, match=message) as caught:
        read_baseline(path)
    assert caught.value.exit_code is ExitCode.UNREADABLE
    assert str(path) in str(caught.value)


def test_a_folder_or_binary_file_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00{}")
    (tmp_path / "conflict.json").write_text("<<<<<<< HEAD\n")
    with pytest.raises(ExporterError) as caught:
        read_baseline(tmp_path)
    assert caught.value.exit_code is ExitCode.UNREADABLE
    assert [str(each).split("/")[-1][:10] for each in caught.value.problems] == [
        "bytes.json",
        "conflict.j",
    ]
    (tmp_path / "bytes.json").unlink()
    (tmp_path / "conflict.json").unlink()
    (tmp_path / "a.json").mkdir()
    with pytest.raises(ExporterError, match="cannot be read") as caught:
        read_baseline(tmp_path)
    assert caught.value.exit_code is ExitCode.UNREADABLE


def test_two_records_of_a_cell_are_an_error() -> None:
    run = make_run(make_record("a/9/cpu", "fail"), make_record("a/9/cpu", "pass"))
    with pytest.raises(ExporterError, match="the cell a/9/cpu twice") as caught:
        extract_outcomes(run)
    assert caught.value.exit_code is ExitCode.UNREADABLE
    with pytest.raises(ExporterError):
        make_baseline(run)


@given(
    st.from_regex(r"[a-z0-9][a-z0-9_.-]*", fullmatch=True),
    st.integers(0, 99),
    st.from_regex(r"[a-z0-9][a-z0-9_.-]*", fullmatch=True),
)
def test_a_cell_is_parsed_as_it_is_written(model: str, opset: int, device: str) -> None:
    cell = CellId(model=model, opset=opset, device=device)
    assert parse_cell(str(cell)) == cell


@pytest.mark.parametrize("text", ["", "a", "a/9", "a//cpu", "a/x/cpu", "/9/cpu", "a/9/", "a/-1/c"])
def test_other_text_is_not_a_cell(text: str) -> None:
    with pytest.raises(ValueError, match="model/opset/device"):
        parse_cell(text)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (make_record("a/9/cpu"), "pass"),
        (make_record("a/9/cpu", "error"), "error at convert"),
        (make_record("a/9/cpu", "fail", check="axes"), "fail at parity (axes)"),
        (make_record("a/9/cpu", "fail", check="parity"), "fail at parity"),
        (make_record("a/9/cpu", "skip"), "skip"),
    ],
)
def test_an_outcome_has_a_short_text(record: Record, text: str) -> None:
    assert str(extract_outcome(record)) == text
    assert extract_outcome(record).status is Status(text.split(maxsplit=1)[0])


def test_the_baseline_has_every_failing_check() -> None:
    checks = tuple(
        CheckResult(check=name, status=Status.PASS if name == "parity" else Status.FAIL)
        for name in ("parity", "axes", "values")
    )
    outcome = extract_outcome(make_record("a/9/cpu", "fail", check="axes", checks=checks))
    assert (outcome.check, outcome.other_checks) == ("axes", ("values",))
    assert str(outcome) == "fail at parity (axes, values)"


def test_branches_with_different_models_merge_without_a_conflict(tmp_path: Path) -> None:
    """Both branches add a model, accept another result of a model, and use other tools."""
    folder = tmp_path / "baseline"

    def commit(branch: str, *records: Record, torch: str) -> Baseline:
        accepted = read_baseline(folder) if folder.exists() else Baseline()
        new = make_baseline(make_run(*records, tools={"torch": torch}))
        merged = Baseline(models={**accepted.models, **new.models})
        write_baseline(folder, merged)
        run_git(tmp_path, "checkout", "-qB", branch)
        run_git(tmp_path, "add", ".")
        run_git(tmp_path, "commit", "-qm", branch)
        return new

    run_git(tmp_path, "init", "-q", "-b", "main")
    commit("main", make_record("a/9/cpu"), make_record("b/9/cpu"), torch="2.12.0")
    ours = commit("ours", make_record("a/9/cpu", "fail"), make_record("aa/9/cpu"), torch="2.13.0")
    run_git(tmp_path, "checkout", "-q", "main")
    theirs = commit(
        "theirs", make_record("b/9/cpu", "fail"), make_record("ab/9/cpu"), torch="2.14.0"
    )
    run_git(tmp_path, "merge", "-q", "--no-edit", "ours")
    merged = read_baseline(folder)
    assert merged == Baseline(models=dict(sorted({**ours.models, **theirs.models}.items())))
    assert merged.tools == {"torch": "2.13.0, 2.14.0"}


COMMITS = 60
#: The points at which the file grows, and at which a cell becomes red.
GROWN, RED = 20, 45


def make_versions() -> list[tuple[Commit, Baseline]]:
    versions = []
    for index in range(COMMITS):
        size = 2000 if index >= GROWN else 1000
        artifact = make_artifact("alexnet", 18, bytes=size, nodes=7)
        records = (
            make_record("alexnet/17/cpu", "fail" if index >= RED else "pass"),
            make_record("alexnet/18/cpu", artifact=artifact),
        )
        commit = Commit(id=f"{index:012x}", day="2026-11-22")
        versions.append((commit, make_baseline(make_run(*records))))
    return versions


def test_a_step_is_a_commit_that_changes_a_figure() -> None:
    trend = build_trend(make_versions())
    assert len(trend) == COMMITS
    assert [point.green for point in trend] == [2] * RED + [1] * (COMMITS - RED)
    steps = list_steps(trend, "alexnet")
    assert [step[0].split(" ")[0] for step in steps] == [
        f"{index:012x}" for index in (RED, GROWN, 0)
    ]
    assert [step[1] for step in steps] == ["1 of 2", "2 of 2", "2 of 2"]
    assert [step[3] for step in steps] == ["2.00 kB", "2.00 kB", "1.23 kB"]
    assert list_steps(trend, "unknown") == ()


def test_pages_have_trends_only_with_commits() -> None:
    versions = make_versions()
    manifest = make_manifest(make_spec())
    run = make_run(make_record("alexnet/17/cpu"), make_record("alexnet/18/cpu"))
    history = AcceptanceHistory(versions[-1][1], build_trend(versions), "commit 1a2b")
    head, _ = build_index_data(manifest, run, collect_cells(manifest, run), history)
    assert len(head["commits"]) == COMMITS
    assert head["trends"]["alexnet"]["nodes"] == (7,) * COMMITS
    pages = render_pages(manifest, run, history=history)
    assert (
        '<p class="stamp">commit 1a2b</p>'
        in render_site_files(manifest, run, history)["index.html"]
    )
    assert f"| {RED:012x} of 2026-11-22 | 1 of 2 |" in pages["models/alexnet.md"]
    plain = render_pages(manifest, run, history=AcceptanceHistory(versions[-1][1]))
    assert "2026-11-22" not in "".join(plain.values())


@pytest.mark.parametrize("kind", ["device", "pipe", "file", "large"])
def test_a_baseline_that_is_no_plain_file_is_unreadable(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "baseline/m.json"
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        path.touch()
        os.truncate(path, CELL_LIMIT + 1)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else __file__)
    with pytest.raises(ExporterError, match=r"baseline/m\.json: cannot be read: ") as caught:
        read_baseline(path.parent)
    assert caught.value.exit_code is ExitCode.UNREADABLE
