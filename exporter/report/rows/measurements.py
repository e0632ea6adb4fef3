"""Measured speed and memory of files, and the wall time of stages and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.core.text import format_bytes
from exporter.records.record import Record, Stage
from exporter.report.rows.cells import Cell, Row

#: Units of time, the largest first.
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def build_measurement_rows(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return the rows by device and opset."""
    rows = []
    for cell in sorted(cells, key=lambda cell: (cell.id.device, cell.id.opset)):
        record = cell.record
        if record is None or record.measurements is None or record.artifact is None:
            continue
        values = record.measurements
        latency, load, memory = values.latency, values.load, values.memory
        times = (latency.median, latency.p95) if latency else ()
        rows.append(
            {
                "device": cell.id.device,
                "opset": cell.id.opset,
                "latency": ", ".join(format_seconds(seconds) for seconds in times),
                "latency_ratio": format_ratio(latency.ratio) if latency else "",
                "load": format_seconds(load.seconds) if load else "",
                "load_ratio": format_ratio(load.ratio) if load else "",
                "memory": format_bytes(memory.bytes) if memory else "",
                "memory_ratio": format_ratio(memory.ratio) if memory else "",
                "size": format_bytes(record.artifact.bytes),
            }
        )
    return tuple(rows)


def format_seconds(seconds: float) -> str:
    """Return a time with two significant digits: `1.5 ms`."""
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{format_ratio(seconds / size)} {unit}"


def format_ratio(value: float) -> str:
    """Return a number with two significant digits and without an exponent: `130`, `0.34`."""
    return f"{float(f'{value:.2g}'):g}"


#: Stages that run for each device, and those that run once for a model. The time for PyTorch's
#: reference outputs contains that of the model and a little more for each opset.
_PER_CELL, _PER_MODEL = (Stage.LOAD, Stage.PARITY), (Stage.SOURCE, "reference")
#: Seconds: shorter times are not listed.
_SHORTEST = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds, the slowest first."""

    stages: Mapping[str, float]
    checks: Mapping[str, float]

    @property
    def total(self) -> float:
        """The sum over all stages, which include the checks."""
        return sum(self.stages.values())


def sum_timings(records: Iterable[Record]) -> Timings:
    """Return the sums over the records."""
    stages: dict[str, float] = {}
    checks: dict[str, float] = {}
    seen: set[tuple[str, str, float]] = set()
    shared: dict[tuple[str, str], float] = {}
    for record in records:
        for stage, seconds in record.seconds.items():
            # Records of one model with the same time of a stage shared it.
            key = (record.cell.model, stage, seconds)
            if stage in _PER_MODEL:
                shared[key[:2]] = max(shared.get(key[:2], 0.0), seconds)
            elif stage in _PER_CELL or key not in seen:
                stages[stage] = stages.get(stage, 0.0) + seconds
            seen.add(key)
        for result in record.checks:
            key = (f"{record.cell.model}/{record.cell.opset}", result.check, result.seconds)
            if key not in seen:  # structure checks are shared by the devices
                checks[result.check] = checks.get(result.check, 0.0) + result.seconds
            seen.add(key)
    for (_, stage), seconds in shared.items():
        stages[stage] = stages.get(stage, 0.0) + seconds
    return Timings(stages=_sort(stages), checks=_sort(checks))


def build_timing_rows(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return one row for each cell that ran."""
    rows = []
    for cell in cells:
        if cell.record and cell.record.seconds:
            times = sum_timings([cell.record])
            stages, checks = format_timings(times.stages), format_timings(times.checks)
            rows.append({"cell": str(cell.id), "stages": stages, "checks": checks})
    return tuple(rows)


def format_timings(times: Mapping[str, float]) -> str:
    """Return `parity 12.3 s, load 0.4 s`."""
    listed = [f"{name} {seconds:.1f} s" for name, seconds in times.items() if seconds >= _SHORTEST]
    return ", ".join(listed) or f"less than {_SHORTEST} s each"


def _sort(times: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(times.items(), key=lambda item: -item[1]))
