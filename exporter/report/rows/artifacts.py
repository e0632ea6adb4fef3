"""Artifacts: their sizes, their operators, and the notes of the exporter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exporter.core.device_name import SEPARATOR
from exporter.manifest.syntax.values import format_opsets
from exporter.records.record import Artifact, Record, Stage
from exporter.report.rows.cells import Cell, Row

#: The suffix of the device and the opset of a file.
FileKey = tuple[str, int]


def build_metric_rows(by_model: Mapping[str, Sequence[Cell]]) -> tuple[Row, ...]:
    """Return the metric of each file and of PyTorch, one row for opsets with equal figures."""
    rows: list[Row] = []
    for model_id, cells in by_model.items():
        opsets: dict[tuple[float, float], list[FileKey]] = {}
        for cell in cells:
            if cell.record:
                for result in cell.record.checks:
                    figures = [result.metrics.get(key) for key in ("pytorch", "metric")]
                    if result.check == "metric" and all(
                        isinstance(each, float) for each in figures
                    ):
                        pytorch, value = (float(f"{float(each or 0):.4g}") for each in figures)
                        opsets.setdefault((pytorch, value), []).append(find_key(cell))
        rows += [
            {"model": model_id, "opsets": format_files(group), "pytorch": pytorch, "metric": value}
            for (pytorch, value), group in opsets.items()
        ]
    return tuple(rows)


def collect_artifacts(cells: Iterable[Cell]) -> dict[FileKey, tuple[Record, Artifact]]:
    """Return the first record with an artifact for each file."""
    artifacts: dict[FileKey, tuple[Record, Artifact]] = {}
    for cell in cells:
        if cell.record and cell.record.artifact:
            artifacts.setdefault(find_key(cell), (cell.record, cell.record.artifact))
    return artifacts


def find_key(cell: Cell) -> FileKey:
    return cell.id.device.suffix, cell.id.opset


def format_files(keys: Iterable[FileKey]) -> str:
    """Return `18, 20; 18 @onnxscript0.6`: the opsets of each suffix."""
    opsets: dict[str, list[int]] = {}
    for suffix, opset in keys:
        opsets.setdefault(suffix, []).append(opset)
    return "; ".join(
        f"{format_opsets(each)} {SEPARATOR}{suffix}" if suffix else format_opsets(each)
        for suffix, each in opsets.items()
    )


#: Stages that run for each device, and those that run once for a model. The time for PyTorch's
#: reference outputs contains that of the model and a little more for each opset.
_PER_CELL, _PER_MODEL = (Stage.LOAD, Stage.PARITY), (Stage.SOURCE, "reference")
#: Seconds: shorter times are not listed.
_SHORTEST = 0.05


def sum_timings(records: Iterable[Record]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of stages, which include the checks, and of checks; the slowest first."""
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
    return _sort(stages), _sort(checks)


def format_timings(times: Mapping[str, float]) -> str:
    """Return `parity 12.3 s, load 0.4 s`."""
    listed = [f"{name} {seconds:.1f} s" for name, seconds in times.items() if seconds >= _SHORTEST]
    return ", ".join(listed) or f"less than {_SHORTEST} s each"


def _sort(times: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(times.items(), key=lambda item: -item[1]))
