"""Sums of seconds: shared stages count once."""

from __future__ import annotations

from exporter.records.baseline import parse_cell
from exporter.records.record import CheckResult, Record, Status
from exporter.report.rows.measurements import format_timings, sum_timings
from tests.unit.factory import make_record


def _make(cell: str, **seconds: float) -> Record:
    check = CheckResult(check="axes", status=Status.PASS, seconds=seconds["parity"])
    return make_record(parse_cell(cell), seconds=seconds, checks=(check,))


def test_shared_stages_count_once_and_others_for_each_cell() -> None:
    records = [
        _make("net/17/cpu", source=2.0, reference=1.0, convert=0.5, parity=0.25),
        _make("net/17/openvino", source=2.0, reference=1.0, convert=0.5, parity=0.75),
        _make("net/18/cpu", source=2.0, reference=1.5, convert=1.5, parity=0.25),
        _make("other/18/cpu", source=2.0, reference=0.5, convert=1.5, parity=0.25),
    ]
    times = sum_timings(records)
    assert times.stages == {"source": 4.0, "convert": 3.5, "reference": 2.0, "parity": 1.5}
    assert list(times.stages) == ["source", "convert", "reference", "parity"]
    assert times.total == 11.0
    assert times.checks == {"axes": 1.5}


def test_short_times_are_omitted() -> None:
    assert format_timings({"parity": 2.0, "load": 0.01}) == "parity 2.0 s"
    assert format_timings({"load": 0.01}) == "less than 0.05 s each"
