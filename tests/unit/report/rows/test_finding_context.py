"""Where a finding is, since when, and how to see it again."""

from __future__ import annotations

from collections.abc import Collection

from exporter.gate import GateFinding, compare_results
from exporter.manifest import Manifest
from exporter.records.baseline import Baseline, make_baseline
from exporter.records.record import Record, Source
from exporter.report.rows.finding_context import GateContext, find_context
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


def found(*records: Record, planned: Collection[str] = ()) -> tuple[GateFinding, ...]:
    run = make_run(*records)
    return compare_results(ACCEPTED, run, planned or run.by_cell())


def known(*records: Record, manifest: Manifest = MANIFEST, accepted_in: str = IN) -> GateContext:
    return GateContext(
        manifest=manifest, records=make_run(*records).by_cell(), accepted_in=accepted_in
    )


def test_a_newly_red_cell_has_all_of_it() -> None:
    sources = (Source(file="models/net.py", sha256=""), Source(file="models/*.py", sha256=""))
    red = make_record("net/17/cpu", "error", detail=DETAIL, sources=sources)
    (finding,) = found(red, make_record("net/18/cpu", "error"))
    lead = find_context([finding], known(red))
    assert lead.places == ("manifests/vision.toml:7",)
    assert lead.lines == ("models/net.py:12",)
    assert lead.since == f"last green in {IN}"
    assert lead.rerun == "exporter export 'net/17/cpu'"
    assert lead.reproduce == "exporter repro net/17/cpu"


def test_two_sources_of_one_name_are_no_line_of_the_model() -> None:
    sources = (Source(file="a/net.py", sha256=""), Source(file="b/net.py", sha256=""))
    red = make_record("net/17/cpu", "error", detail=DETAIL, sources=sources)
    (finding,) = found(red, make_record("net/18/cpu", "error"))
    assert find_context([finding], known(red)).lines == ()


def test_what_was_red_before_was_not_green_then() -> None:
    worse = make_record("net/18/cpu", "crash")
    (finding,) = found(make_record("net/17/cpu"), worse)
    since = find_context([finding], known(worse)).since
    assert since == f"accepted so in {IN}: error at convert"


def test_what_is_new_was_never_accepted_and_an_unknown_commit_is_not_named() -> None:
    new = make_record("other/17/cpu", "fail")
    (finding,) = compare_results(Baseline(tools={}, cells=()), make_run(new), ["other/17/cpu"])
    assert find_context([finding], known(new)).since == "new: it was never accepted"
    red = make_record("net/17/cpu", "fail")
    (finding,) = found(red, make_record("net/18/cpu", "error"))
    assert find_context([finding], known(red, accepted_in="")).since == ""


def test_a_cell_that_is_gone_has_nothing_to_run() -> None:
    (finding,) = found(make_record("net/18/cpu", "error"), planned=["net/18/cpu"])
    lead = find_context([finding], known(manifest=make_manifest(make_spec("other"))))
    assert (lead.places, lead.rerun, lead.reproduce) == ((), "", "")
    assert lead.since == f"last green in {IN}"
