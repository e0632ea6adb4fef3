"""Measured figures as text, and times summed over cells."""

from __future__ import annotations

import pytest

from exporter.records.baseline import make_baseline, parse_cell
from exporter.records.record import (
    CheckResult,
    Latency,
    LoadTime,
    Measurements,
    PeakMemory,
    Record,
    Status,
)
from exporter.report.pages.model_page import (
    build_measurement_rows,
    count_operators,
    format_seconds,
    group_files,
)
from exporter.report.rows.artifacts import format_timings, sum_timings
from exporter.report.rows.cells import AcceptanceHistory, Cell, collect_cells
from tests.unit.factory import make_artifact, make_manifest, make_record, make_run, make_spec


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
    stages, checks = sum_timings(records)
    assert stages == {"source": 4.0, "convert": 3.5, "reference": 2.0, "parity": 1.5}
    assert list(stages) == ["source", "convert", "reference", "parity"]
    assert checks == {"axes": 1.5}


def test_short_times_are_omitted() -> None:
    assert format_timings({"parity": 2.0, "load": 0.01}) == "parity 2.0 s"
    assert format_timings({"load": 0.01}) == "less than 0.05 s each"


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
    (row,) = build_measurement_rows(cells, AcceptanceHistory(commit="commit 1"))
    assert (row["device"], row["opset"]) == ("cpu", 18)
    assert (row["latency"], row["latency_ratio"]) == ("1.2 ms, 3.4 ms", "0.46")
    assert (row["load"], row["load_ratio"]) == ("20 ms", "130")
    assert (row["memory"], row["memory_ratio"]) == ("3.00 MB", "1.5")


def test_a_loop_shows_its_tokens_per_second() -> None:
    latency = Latency(median=0.02, p95=0.03, ratio=0.25, turns=9, tokens=32)
    cell, history = _make_cell("net/18/cpu", Measurements(latency=latency)), "commit 1"
    (row,) = build_measurement_rows([cell], AcceptanceHistory(commit=history))
    assert row["latency"] == "1600 tokens per second, PyTorch 400"
    assert row["latency_ratio"] == "0.25"


def test_an_unrequested_measurement_is_empty() -> None:
    only_load = Measurements(load=MEASURED.load)
    cell, history = _make_cell("net/18/cpu", only_load), AcceptanceHistory(commit="commit 1")
    (row,) = build_measurement_rows([cell], history)
    assert (row["latency"], row["latency_ratio"], row["memory"]) == ("", "", "")


def test_noise_of_a_measurement_changes_no_committed_page() -> None:
    cell = _make_cell("net/18/cpu", MEASURED)
    history = AcceptanceHistory(make_baseline(make_run(cell.record)))
    (before,) = build_measurement_rows([cell], history)
    assert before == {
        "device": "cpu", "opset": 18, "size": "1.23 kB",
        "latency_ratio": "0.46", "load_ratio": "130", "memory_ratio": "1.5",
    }  # fmt: skip
    for ratio, text in ((0.7, "0.46"), (0.3, "0.46"), (1.2, "1.2"), (0.2, "0.2")):
        latency = Latency(median=0.002, p95=0.0034, ratio=ratio, turns=9)
        noisy = _make_cell("net/18/cpu", MEASURED.model_copy(update={"latency": latency}))
        assert build_measurement_rows([noisy], history) == (before | {"latency_ratio": text},)


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (0.0123, "12 ms"), (4e-5, "40 µs"), (1e-8, "0.01 µs")]
)
def test_seconds_have_a_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_files_of_toolchains_are_not_mixed() -> None:
    manifest = make_manifest(make_spec("net", opsets=(18, 20), devices=("cpu", "cuda", "cpu@old")))
    other = {"nodes": 7, "operators": {"Cast": 1}}
    run = make_run(
        *(make_record(f"net/{opset}/{device}") for opset in (18, 20) for device in ("cpu", "cuda")),
        make_record("net/18/cpu@old", artifact=make_artifact("net", 18, **other)),
        make_record("net/20/cpu@old"),
    )
    cells = collect_cells(manifest, run)["net"]
    assert [row["opsets"] for row in group_files(cells)] == ["18, 20; 20 @old", "18 @old"]
    assert count_operators(cells)["opsets"][-1] == "18 @old"
