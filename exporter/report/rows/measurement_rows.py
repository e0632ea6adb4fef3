"""The measured speed and memory of a model's files, for models with `measure`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from exporter.core.text import format_bytes
from exporter.records.measurements import Measurements
from exporter.report.rows.cells import Cell

#: Units of time, the largest first.
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRow:
    """One file on one device; a field is empty if it was not measured."""

    device: str
    opset: int
    latency: str
    """The median and the 95th percentile."""
    latency_ratio: str
    """As a multiple of PyTorch's time in the same run."""
    load: str
    load_ratio: str
    """As a multiple of the load time of a file with one node."""
    memory: str
    memory_ratio: str
    """As a multiple of the size of the file."""
    size: str
    """The file with its external data."""
    values: Measurements


def build_measurement_rows(cells: Iterable[Cell]) -> tuple[MeasurementRow, ...]:
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
            MeasurementRow(
                device=cell.id.device,
                opset=cell.id.opset,
                latency=", ".join(format_seconds(seconds) for seconds in times),
                latency_ratio=format_ratio(latency.ratio) if latency else "",
                load=format_seconds(load.seconds) if load else "",
                load_ratio=format_ratio(load.ratio) if load else "",
                memory=format_bytes(memory.bytes) if memory else "",
                memory_ratio=format_ratio(memory.ratio) if memory else "",
                size=format_bytes(record.artifact.bytes),
                values=values,
            )
        )
    return tuple(rows)


def format_seconds(seconds: float) -> str:
    """Return a time with two significant digits: `1.5 ms`."""
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{format_ratio(seconds / size)} {unit}"


def format_ratio(value: float) -> str:
    """Return a number with two significant digits and without an exponent: `130`, `0.34`."""
    return f"{float(f'{value:.2g}'):g}"
