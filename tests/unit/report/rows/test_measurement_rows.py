"""Rows of measurements, and their chart."""

from __future__ import annotations

import pytest

from exporter.records.baseline import parse_cell
from exporter.records.measurements import Latency, LoadTime, Measurements, PeakMemory
from exporter.report.rows.cells import Cell
from exporter.report.rows.measurements import build_measurement_rows, format_seconds
from tests.unit.factory import make_artifact, make_record

MEASURED = Measurements(
    latency=Latency(median=0.0012, p95=0.0034, ratio=0.456, turns=9),
    load=LoadTime(seconds=0.02, ratio=130.0),
    memory=PeakMemory(bytes=3_000_000, ratio=1.5),
)


def _make_cell(text: str, measurements: Measurements | None) -> Cell:
    cell = parse_cell(text)
    artifact = make_artifact(cell.model, cell.opset)
    return Cell(id=cell, record=make_record(cell, artifact=artifact, measurements=measurements))


def test_rows_have_values_and_multiples() -> None:
    cells = [_make_cell("net/18/cpu", MEASURED), _make_cell("net/17/cpu", None)]
    (row,) = build_measurement_rows(cells)
    assert (row["device"], row["opset"]) == ("cpu", 18)
    assert (row["latency"], row["latency_ratio"]) == ("1.2 ms, 3.4 ms", "0.46")
    assert (row["load"], row["load_ratio"]) == ("20 ms", "130")
    assert (row["memory"], row["memory_ratio"]) == ("3.00 MB", "1.5")


def test_an_unrequested_measurement_is_empty() -> None:
    only_load = Measurements(load=MEASURED.load)
    (row,) = build_measurement_rows([_make_cell("net/18/cpu", only_load)])
    assert (row["latency"], row["latency_ratio"], row["memory"]) == ("", "", "")


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (0.0123, "12 ms"), (4e-5, "40 µs"), (1e-8, "0.01 µs")]
)
def test_seconds_have_a_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
