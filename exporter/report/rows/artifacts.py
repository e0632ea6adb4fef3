"""Artifacts: their sizes, their operators, and the notes of the exporter."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from exporter.core.device_name import SEPARATOR
from exporter.core.text import format_bytes
from exporter.manifest import ModelSpec
from exporter.manifest.syntax.releases import find_first_release, find_older_release, format_release
from exporter.manifest.syntax.values import format_opsets
from exporter.records.record import INITIAL_WEIGHTS, Artifact, Record, Stage, Status
from exporter.report import formats
from exporter.report.rows.cells import AcceptanceHistory, Cell, Row, group_by_opset

#: The suffix of the device and the opset of a file.
_FileKey = tuple[str, int]


def group_files(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return one row for opsets with the same exporter and figures."""
    opsets: dict[tuple[tuple[str, object], ...], list[_FileKey]] = {}
    for opset, (record, artifact) in _collect_artifacts(cells).items():
        row = {
            "exporter": record.route.title if record.route else "",
            "size": format_bytes(artifact.bytes),
            "nodes": formats.format_count(artifact.nodes),
            "parameters": formats.format_count(artifact.parameters),
            "ir_version": artifact.ir_version,
            # Only their number: the names contain a hash.
            "external_data": str(len(artifact.external_data) or ""),
        }
        opsets.setdefault(tuple(row.items()), []).append(opset)
    return tuple({"opsets": _format_files(group), **dict(row)} for row, group in opsets.items())


def build_variant_rows(
    models: Iterable[ModelSpec], by_model: Mapping[str, Sequence[Cell]]
) -> tuple[Row, ...]:
    """Return each entry that variants with passes extend, followed by its variants."""
    specs = list(models)
    rows: list[Row] = []
    for parent in dict.fromkeys(spec.parent for spec in specs if spec.parent):
        exported = _collect_artifacts(by_model.get(parent, ()))
        rows += _list_sizes(parent, "", by_model.get(parent, ()), exported)
        for spec in specs:
            if spec.parent == parent:
                calls = ", ".join(each.call for each in spec.passes)
                rows += _list_sizes(spec.id, calls, by_model[spec.id], exported)
    return tuple(rows)


def build_metric_rows(by_model: Mapping[str, Sequence[Cell]]) -> tuple[Row, ...]:
    """Return the metric of each file and of PyTorch, one row for opsets with equal figures."""
    rows: list[Row] = []
    for model, cells in by_model.items():
        opsets: dict[tuple[float, float], list[_FileKey]] = {}
        for cell in cells:
            for result in cell.record.checks if cell.record else ():
                figures = [result.metrics.get(key) for key in ("pytorch", "metric")]
                if result.check == "metric" and all(isinstance(each, float) for each in figures):
                    pytorch, value = (float(f"{float(each or 0):.4g}") for each in figures)
                    opsets.setdefault((pytorch, value), []).append(_find_key(cell))
        rows += [
            {"model": model, "opsets": _format_files(group), "pytorch": pytorch, "metric": value}
            for (pytorch, value), group in opsets.items()
        ]
    return tuple(rows)


def _list_sizes(
    model: str,
    passes: str,
    cells: Sequence[Cell],
    exported: Mapping[_FileKey, tuple[Record, Artifact]],
) -> Iterator[Row]:
    """Yield one row for the opsets with equal figures; sizes are relative to the parent's."""
    opsets: dict[tuple[str, str, str], list[_FileKey]] = {}
    for key, (record, artifact) in _collect_artifacts(cells).items():
        before = exported[key][1].bytes if key in exported else 0
        share = f" ({artifact.bytes / before - 1:+.0%})" if before and passes else ""
        errors = [item.metrics.get("max_abs") for item in record.checks]
        known = [float(error) for error in errors if isinstance(error, int | float)]
        error = formats.format_magnitude(max(known)) if known else ""
        figures = (
            format_bytes(artifact.bytes) + share,
            formats.format_count(artifact.nodes),
            error,
        )
        opsets.setdefault(figures, []).append(key)
    for (size, nodes, error), group in opsets.items():
        yield {
            "model": model,
            "passes": passes,
            "opsets": _format_files(group),
            "size": size,
            "nodes": nodes,
            "error": error,
        }


def group_releases(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return one row for opsets with the same first release of ONNX Runtime."""
    opsets: dict[str, list[_FileKey]] = {}
    for opset, (_, artifact) in _collect_artifacts(cells).items():
        opsets.setdefault(_describe_releases(artifact), []).append(opset)
    return tuple(
        {"opsets": _format_files(group), "releases": releases} for releases, group in opsets.items()
    )


def count_operators(cells: Iterable[Cell]) -> Row:
    """Return the operators of all files, with one column for opsets with equal counts."""
    opsets: dict[Hashable, list[_FileKey]] = {}
    counts: dict[Hashable, dict[str, int]] = {}
    for opset, (_, artifact) in _collect_artifacts(cells).items():
        key = frozenset(artifact.operators.items())
        opsets.setdefault(key, []).append(opset)
        counts[key] = artifact.operators
    names = sorted({name for table in counts.values() for name in table})
    return {
        "opsets": tuple(_format_files(group) for group in opsets.values()),
        "rows": tuple(
            {"operator": name, "counts": tuple(counts[key].get(name, 0) for key in opsets)}
            for name in names
        ),
    }


def group_notes(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return each note once, with its opsets."""
    opsets: dict[str, list[_FileKey]] = {}
    for cell in cells:
        for note in cell.record.notes if cell.record else ():
            if note.startswith(INITIAL_WEIGHTS):
                continue  # the contract has it
            opsets.setdefault(formats.clean_message(note), []).append(_find_key(cell))
    return tuple({"opsets": _format_files(group), "text": text} for text, group in opsets.items())


def _collect_artifacts(cells: Iterable[Cell]) -> dict[_FileKey, tuple[Record, Artifact]]:
    """Return the first record with an artifact for each file."""
    artifacts: dict[_FileKey, tuple[Record, Artifact]] = {}
    for cell in cells:
        if cell.record and cell.record.artifact:
            artifacts.setdefault(_find_key(cell), (cell.record, cell.record.artifact))
    return artifacts


def _find_key(cell: Cell) -> _FileKey:
    return cell.id.device.suffix, cell.id.opset


def _format_files(keys: Iterable[_FileKey]) -> str:
    """Return `18, 20; 18 @onnxscript0.6`: the opsets of each suffix."""
    opsets: dict[str, list[int]] = {}
    for suffix, opset in keys:
        opsets.setdefault(suffix, []).append(opset)
    return "; ".join(
        f"{format_opsets(each)} {SEPARATOR}{suffix}" if suffix else format_opsets(each)
        for suffix, each in opsets.items()
    )


def _describe_releases(artifact: Artifact) -> str:
    opset, ir_version = artifact.opset_imports.get("", 0), artifact.ir_version
    first = find_first_release(opset, ir_version)
    text = f"{format_release(first)} and later" if first else "no known release"
    if older := find_older_release(opset, ir_version):
        release = format_release(older.release)
        text += f", for IR version {ir_version}; "
        text += f"ir_version = {older.ir_version} is enough for {release}"
    domains = sorted(domain for domain in artifact.opset_imports if domain)
    return f"{text}, with kernels of {', '.join(domains)}" if domains else text


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCell:
    """The result of one check."""

    mark: formats.Mark
    figures: tuple[str, ...]
    """`error ≤ 1e-4`: rounded to values that all machines agree on."""


def build_check_table(device: str, cells: Sequence[Cell]) -> Row:
    """Return the results of all cells on one device that have some: checks by opsets."""
    checked = [cell for cell in cells if cell.record and cell.record.checks]
    checks = tuple(
        dict.fromkeys(
            result.check for cell in checked if cell.record for result in cell.record.checks
        )
    )
    groups = group_by_opset(checked, lambda cell: cell.id, lambda cell: _list_results(cell, checks))
    rows: tuple[Row, ...] = tuple(
        {"opsets": group.opset_ranges, "results": _list_results(group.first, checks)}
        for group in groups
    )
    marks = {result.mark for row in rows for result in row["results"] if result}
    return {"device": device, "checks": checks, "rows": rows, "marks": marks}


def _list_results(cell: Cell, checks: Sequence[str]) -> tuple[CheckCell | None, ...]:
    results = {
        result.check: summarize_result(result.status, tuple(result.metrics.items()))
        for result in (cell.record.checks if cell.record else ())
    }
    return tuple(results.get(check) for check in checks)


@lru_cache(maxsize=1 << 15, typed=True)  # called several times, and many cells are equal
def summarize_result(status: Status, metrics: tuple[tuple[str, float | str], ...]) -> CheckCell:
    """Return the mark of a check with the figures that all machines agree on."""
    texts = (_format_figure(name, value) for name, value in metrics)
    return CheckCell(mark=formats.MARKS[status], figures=tuple(text for text in texts if text))


def _format_figure(name: str, value: float | str) -> str:
    """Return a figure as text, or "" if it depends on the machine."""
    match name, value:
        case "of_limit", float():
            # An error of 0 and a limit of 0 have no meaningful ratio.
            return "" if value in (0.0, math.inf) else formats.format_limit_share(value)
        case "max_abs", float():
            return f"error {formats.format_magnitude(value)}"
        case "nodes", _:  # the optimizer of the runtime depends on the processor
            return ""
        case _, float():
            return ""
        case _:
            return f"{name} {value}"


#: The factor up to which two multiples of equal files differ.
_NOISE = 2.0
#: Units of time, the largest first.
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def build_measurement_rows(cells: Iterable[Cell], history: AcceptanceHistory) -> tuple[Row, ...]:
    """Return the measurements; times and bytes only for pages that no commit contains.

    A multiple up to `_NOISE` from the accepted one is replaced by it, so noise changes no page.
    """
    rows = []
    for cell in sorted(cells, key=lambda cell: (cell.id.device, cell.id.opset)):
        record = cell.record
        if record is None or record.measurements is None or record.artifact is None:
            continue
        values, accepted = record.measurements, history.find_figures(cell)
        latency, load, memory = values.latency, values.load, values.memory
        times = (latency.median, latency.p95) if latency else ()
        text = ", ".join(format_seconds(seconds) for seconds in times)
        if latency and latency.tokens:
            rates = [latency.tokens / latency.median * each for each in (1.0, latency.ratio)]
            text = "{} tokens per second, PyTorch {}".format(*map(format_ratio, rates))
        ratios = {}
        for name, value in (("latency", latency), ("load", load), ("memory", memory)):
            old = getattr(accepted, name, None) or math.inf
            is_noise = value and 1 / _NOISE < value.ratio / old < _NOISE
            ratios[f"{name}_ratio"] = (
                format_ratio(old if is_noise else value.ratio) if value else ""
            )
        raw = {
            "latency": text,
            "load": format_seconds(load.seconds) if load else "",
            "memory": format_bytes(memory.bytes) if memory else "",
        }
        row = {"device": cell.id.device, "opset": cell.id.opset, **ratios}
        row["size"] = format_bytes(record.artifact.bytes)
        rows.append(row | (raw if history.commit else {}))
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
