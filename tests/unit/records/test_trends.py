"""Figures over commits."""

from __future__ import annotations

from exporter.core.git import Commit
from exporter.records.baseline import Baseline, build_trend, list_steps, make_baseline
from exporter.report.pages.browser_data import build_index_data
from exporter.report.pages.page_files import render_pages
from exporter.report.rows.cells import AcceptanceHistory, collect_cells
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec

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
    assert '<p class="stamp">commit 1a2b</p>' in pages["index.html"]
    assert f"| {RED:012x} of 2026-11-22 | 1 of 2 |" in pages["models/alexnet.md"]
    plain = render_pages(manifest, run, history=AcceptanceHistory(versions[-1][1]))
    assert "2026-11-22" not in "".join(plain.values())
