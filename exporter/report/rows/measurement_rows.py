"""The measured speed and memory of a model's files, for models with `measure`."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.core.text import format_bytes
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
