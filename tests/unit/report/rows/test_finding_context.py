"""Locations, acceptance and commands of a finding."""

from __future__ import annotations

from collections.abc import Collection

from exporter.gate import GateFinding, compare_results
from exporter.manifest import Manifest
from exporter.records.baseline import Baseline, make_baseline, parse_cell
from exporter.records.record import CellId, Record, Source
from exporter.report.rows.failure_clusters import GateContext, find_context
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

MANIFEST = make_manifest(make_spec("net", line=7), make_spec("other", line=20))
ACCEPTED = make_baseline(make_run(make_record("net/17/cpu"), make_record("net/18/cpu", "error")))
IN = "2a9548ebe314 of 2026-11-21"
DETAIL = """Traceback
  File "utils.py", line 3, in export
  File "net.py", line 12, in forward
  File "module.py", line 4, in _call_impl
ValueError: no
"""


def compare(*records: Record, planned: Collection[CellId] = ()) -> tuple[GateFinding, ...]:
    run = make_run(*records)
    return compare_results(ACCEPTED, run, planned or run.by_cell())


def make_context(
    *records: Record, manifest: Manifest = MANIFEST, accepted_in: str = IN
) -> GateContext:
    return GateContext(
        manifest=manifest, records=make_run(*records).by_cell(), accepted_in=accepted_in
    )


def test_a_newly_red_cell_has_all_facts() -> None:
    sources = (Source(file="models/net.py", state=""), Source(file="models/*.py", state=""))
    red = make_record("net/17/cpu", "error", detail=DETAIL, sources=sources)
    (finding,) = compare(red, make_record("net/18/cpu", "error"))
    context = find_context([finding], make_context(red))
    assert context.locations == ("manifests/vision.toml:7",)
    assert context.lines == ("models/net.py:12",)
    assert context.acceptance == f"last green in {IN}"
    assert context.export_command == "exporter export 'net/17/cpu'"
    assert context.repro_command == "exporter repro net/17/cpu"


def test_an_ambiguous_file_name_gives_no_line() -> None:
    sources = (Source(file="a/net.py", state=""), Source(file="b/net.py", state=""))
    red = make_record("net/17/cpu", "error", detail=DETAIL, sources=sources)
    (finding,) = compare(red, make_record("net/18/cpu", "error"))
    assert find_context([finding], make_context(red)).lines == ()


def test_a_path_of_a_traceback_is_that_of_a_source() -> None:
    sources = (Source(file="a/net.py", state=""), Source(file="linear.py", state=""))
    detail = 'File "a/net.py", line 4, in forward\nFile "torch/nn/linear.py", line 9, in forward\n'
    red = make_record("net/17/cpu", "error", detail=detail, sources=sources)
    (finding,) = compare(red, make_record("net/18/cpu", "error"))
    assert find_context([finding], make_context(red)).lines == ("a/net.py:4",)


def test_an_older_failure_was_not_green() -> None:
    worse = make_record("net/18/cpu", "crash")
    (finding,) = compare(make_record("net/17/cpu"), worse)
    acceptance = find_context([finding], make_context(worse)).acceptance
    assert acceptance == f"accepted in {IN}: error at convert"


def test_new_cells_and_unknown_commits_have_their_own_text() -> None:
    new = make_record("other/17/cpu", "fail")
    (finding,) = compare_results(Baseline(tools={}, cells=()), make_run(new), [new.cell])
    assert find_context([finding], make_context(new)).acceptance == "new: it was never accepted"
    red = make_record("net/17/cpu", "fail")
    (finding,) = compare(red, make_record("net/18/cpu", "error"))
    assert find_context([finding], make_context(red, accepted_in="")).acceptance == ""


def test_a_removed_cell_has_no_commands() -> None:
    (finding,) = compare(make_record("net/18/cpu", "error"), planned=[parse_cell("net/18/cpu")])
    context = find_context([finding], make_context(manifest=make_manifest(make_spec("other"))))
    assert (context.locations, context.export_command, context.repro_command) == ((), "", "")
    assert context.acceptance == f"last green in {IN}"
