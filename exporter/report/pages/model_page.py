"""The page of each model: its contract, its checks, its files and what fails."""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeVar

from exporter.core.frozen_model import FrozenModel
from exporter.core.text import (
    format_bytes,
    format_command,
    format_two_digits,
    pluralize,
    rename_reference,
)
from exporter.gate.baseline_comparison import find_lowest_opsets
from exporter.manifest import Case, Dim, Fill, ModelSpec, Output, Override, Project
from exporter.manifest.syntax.releases import find_first_release, find_older_release, format_release
from exporter.manifest.syntax.table import read_defaults, read_keys
from exporter.manifest.syntax.values import format_opsets
from exporter.records.record import (
    INITIAL_WEIGHTS,
    TRACER_PREFIX,
    Artifact,
    Record,
    Status,
)
from exporter.report import formats
from exporter.report.formats import LEGEND
from exporter.report.rows import failures, matrix
from exporter.report.rows.artifacts import FileKey, collect_artifacts, find_key, format_files
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    Row,
    describe_reason,
    format_export_command,
    group_by_opset,
    group_cells,
)
from exporter.report.rows.failure_reasons import (
    explain_failure,
    keep_last_lines,
    replace_repetition,
)
from exporter.report.rows.matrix import format_axis_sizes

#: The folder of the models' pages. Only files that begin with `MARK` belong to the report.
PAGES = "models"
TEMPLATE = "model.md"
T = TypeVar("T", bound=Hashable)


def build_model_page(
    spec: ModelSpec,
    cells: Sequence[Cell],
    project: Project,
    history: AcceptanceHistory,
    support: Sequence[Row] = (),
) -> Row:
    """Return the values for the page; docs/api.md describes them."""
    opsets = tuple(sorted({cell.id.opset for cell in cells}))
    by_device: dict[str, list[Cell]] = {}
    for cell in cells:
        by_device.setdefault(cell.id.device, []).append(cell)
    tables = tuple(build_check_table(device_name, each) for device_name, each in by_device.items())
    used = {cell.mark for cell in cells}.union(*(table["marks"] for table in tables))
    rows = tuple(_build_row(device_name, each, opsets) for device_name, each in by_device.items())
    notes = group_notes(cells)
    weights = next((c.record.initial_weights for c in cells if c.record and c.is_pass), "")
    arguments = "dist --initial" if weights else "dist"
    is_wide = len(opsets) > matrix.WIDE  # too many for columns
    source, _, _ = spec.source.partition(":")
    return {
        "spec": spec,
        # From the folder of the page to that of the project.
        "root": posixpath.relpath(".", f"{project.reports}/{PAGES}"),
        "source_file": posixpath.normpath(posixpath.join(posixpath.dirname(spec.manifest), source))
        if source.endswith((".py", ".pt2"))
        else "",
        "contract": describe_contract(spec),
        "weights": weights,
        "data": tuple(
            source
            for source in next((c.record.sources for c in cells if c.record and c.is_pass), ())
            if source.file in spec.data_files
        ),
        "opsets": opsets,
        "load": _format_loading(spec, cells),
        "publish_command": format_command(project.command, "publish", arguments),
        "matrix": rows,
        "is_wide": is_wide,
        "has_gaps": not is_wide and any(None in row["marks"] for row in rows),
        "support": tuple(support),
        "legend": tuple(mark for mark in LEGEND if mark in used),
        "thorough": format_opsets(
            cell.id.opset for cell in cells if cell.record and cell.record.thorough
        ),
        "short_proofs": {
            device_name: format_opsets(short)
            for device_name, each in by_device.items()
            if (short := [cell.id.opset for cell in each if cell.record and cell.record.proved_on])
        },
        "checks": tuple(table for table in tables if table["rows"]),
        "flaky": failures.build_flaky_rows(cells),
        "failures": build_failure_rows(cells, project, history),
        "files": group_files(cells),
        "releases": group_releases(cells),
        "measurements": build_measurement_rows(cells, history),
        "operators": count_operators(cells),
        "notes": notes,
        "tracer_warnings": sum(note["text"].startswith(TRACER_PREFIX) for note in notes),
        "trend": list_steps(history.trend, spec.id),
        "export_command": format_export_command(f"{spec.id}/*", project.command),
    }


def _format_loading(spec: ModelSpec, cells: Sequence[Cell]) -> str:
    """Return code that loads the published file of the highest green opset; "" without one."""
    green = [cell.id for cell in cells if cell.is_pass]
    if not green:
        return ""
    last = max(green, key=lambda id: id.opset)
    folder = f"dist/{last.model}/{last.opset}"
    if spec.chain:
        return f'import sys\n\nsys.path.insert(0, "{folder}")\nfrom run import Chain'
    path = f"{folder}/model.onnx"
    return f'import onnxruntime\n\nsession = onnxruntime.InferenceSession("{path}")'


def _build_row(device_name: str, cells: Sequence[Cell], opsets: Sequence[int]) -> Row:
    marks = {cell.id.opset: cell.mark for cell in cells}
    return {
        "device": device_name,
        "marks": tuple(marks.get(opset) for opset in opsets),
        "opset_runs": find_opset_runs(cells),
        "lowest_opset": find_lowest_opset(cells),
    }


def build_failure_rows(
    cells: Sequence[Cell], project: Project, history: AcceptanceHistory
) -> tuple[Row, ...]:
    """Return the red cells, then the other cells that do not pass.

    Cells with different accepted outcomes are in different rows.
    """
    groups = group_cells(
        (cell for cell in cells if cell.mark is not formats.MARKS[Status.PASS]),
        lambda cell: (history.describe(cell), cell.record and cell.record.flaky),
    )
    rows = []
    for group in sorted(groups, key=lambda group: not group.first.is_red):
        cell = group.first
        record = cell.record or Record(cell=cell.id, status=Status.SKIP)
        rows.append(
            {
                "label": group.label,
                "cell": str(cell.id),
                "mark": cell.mark,
                "is_red": cell.is_red,
                "outcome": cell.outcome,
                "reason": describe_reason(group),
                "expected_reason": cell.expected_reason,
                "acceptance": history.describe(cell),
                "flaky": formats.clean_message(record.flaky),
                "reasons": explain_failure(record, project),
                "failed_checks": _list_failed_checks(record),
                "detail": keep_last_lines(formats.clean_detail(record.detail)),
                "log": f"{project.build}/{record.log}" if record.log else "",
                "export_command": cell.format_command(project.command),
            }
        )
    return tuple(rows)


def _list_failed_checks(record: Record) -> tuple[Row, ...]:
    message = formats.clean_message(record.message)
    return tuple(
        {
            "check": result.check,
            "mark": formats.MARKS[result.status],
            "message": replace_repetition(formats.clean_message(result.message), message),
            "figures": ", ".join(
                f"{name} {format_two_digits(value)}" for name, value in result.metrics.items()
            ),
        }
        for result in record.checks
        if result.status is not Status.PASS
    )


def format_fill(fill: Fill) -> str:
    """Return the fill of an input as text: `uniform [0, 1]`."""
    match fill.kind:
        case "uniform":
            return f"uniform [{fill.low:g}, {fill.high:g}]"
        case "randint":
            return f"randint [{fill.low:g}, {fill.axis or f'{fill.high:g}'})"
        case "bernoulli":
            return f"bernoulli {fill.probability:g}"
        case "mask" | "padding":
            return f"{fill.kind} {fill.side}"
        case "lengths_of":
            return f"lengths of {fill.axis}"
        case "value":
            return f"value {json.dumps(fill.value)}"
        case "file" | "python" | "image":
            mode = f", {fill.mode}" if fill.mode else ""
            return f"{fill.kind} {fill.file or fill.python}{mode}"
        case "normal" | "zeros" | "ones" | "arange" | "function":
            return "inputs_from" if fill.kind == "function" else fill.kind


def describe_contract(spec: ModelSpec) -> dict[str, tuple[Row, ...]]:
    return {
        "settings": tuple(_list_settings(spec)),
        "inputs": tuple(
            {
                "name": input.name,
                "dtype": f"{input.dtype}{', optional' if input.optional else ''}",
                "shape": _format_shape(input.shape) if not input.scalar else "a number",
                "at": input.at or "in order",
                "fill": format_fill(input.fill),
            }
            for input in spec.inputs
        ),
        "outputs": tuple(
            {
                "name": output.name,
                "dtype": output.dtype,
                "shape": _format_shape(output.shape),
                "kind": output.kind,
                "tolerance": _format_output_tolerance(output),
            }
            for output in spec.outputs
        ),
        "axes": tuple(
            {
                "name": axis.name,
                "example": "" if axis.example is None else str(axis.example),
                "sizes": format_axis_sizes(axis),
            }
            for axis in spec.axes
        ),
        "cases": tuple(
            _make_setting(case.name, _format_case(case), is_literal=True) for case in spec.cases
        ),
    }


def _make_setting(name: str, value: str, *, is_literal: bool = False) -> Row:
    """Return a key of the manifest; a literal value is in the notation of the manifest."""
    return {"name": name, "value": value, "is_literal": is_literal}


def _format_case(case: Case) -> str:
    function = {"inputs_from": case.inputs_from.function} if case.inputs_from else {}
    fills = {
        name: fill.value if fill.kind == "value" else fill.file or format_fill(fill)
        for name, fill in case.fills.items()
    }
    return _format_table({**fills, **dict.fromkeys(case.absent), **case.axes, **function})


def _list_settings(spec: ModelSpec) -> Iterator[Row]:
    """Yield the settings that differ from their default, and the overrides."""
    for row in _list_texts(spec):
        yield {**row, "value": rename_reference(row["value"], spec.oracle)}
    for each in spec.overrides:
        cells = [] if each.opsets is None else [f"opsets {format_opsets(each.opsets)}"]
        if each.device != "*":
            cells.append(f"device {each.device}")
        texts = [f"{row['name']}: {row['value']}" for row in _list_texts(each)]
        yield _make_setting(f"override: {', '.join(cells)}", "; ".join(texts))


def _list_texts(keys: ModelSpec | Override) -> Iterator[Row]:
    defaults = read_defaults(type(keys))
    for name, key in read_keys(type(keys)).items():
        value, default = getattr(keys, name), defaults.get(name)
        if callable(key.shown) and value is not None:
            if text := key.shown(value):
                yield _make_setting(name, text)
        elif key.shown and value != default:
            yield _make_setting(name, _format_value(value), is_literal=True)


def _format_value(value: object) -> str:
    match value:
        case str():
            return value
        case FrozenModel():
            return _format_table(value.model_dump(mode="json", exclude_defaults=True))
        case dict():
            return _format_table(value)
        case tuple():
            return "; ".join(map(_format_value, value))
    return json.dumps(value)


def _format_shape(shape: Iterable[Dim]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"


def _format_output_tolerance(output: Output) -> str:
    """Return the tolerance of an output and the mask of its compared values, if it has them."""
    texts = [output.tolerance.describe()] if output.tolerance else []
    if output.compare:
        fields = output.compare.model_dump(exclude_defaults=True)
        texts.append(f"compared by {_format_table(fields)}")
    if output.masked_by:
        texts.append(f"compared by {output.masked_by}")
    return "; ".join(texts)


def _format_table(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())


def _group_files(files: Iterable[tuple[T, FileKey]]) -> dict[T, str]:
    """Return the opsets of the files with each value, in the order of the files."""
    groups: dict[T, list[FileKey]] = {}
    for value, key in files:
        groups.setdefault(value, []).append(key)
    return {value: format_files(keys) for value, keys in groups.items()}


def group_files(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return one row for opsets with the same exporter and figures."""

    def describe(record: Record, artifact: Artifact) -> Row:
        return {
            "exporter": record.route.title if record.route else "",
            "size": format_bytes(artifact.bytes),
            "nodes": formats.format_count(artifact.nodes),
            "parameters": formats.format_count(artifact.parameters),
            "ir_version": artifact.ir_version,
            # Only their number: the names contain a hash.
            "external_data": str(len(artifact.external_data) or ""),
        }

    files = collect_artifacts(cells).items()
    groups = _group_files((tuple(describe(*file).items()), key) for key, file in files)
    return tuple({"opsets": opsets, **dict(row)} for row, opsets in groups.items())


def group_releases(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return one row for opsets with the same first release of ONNX Runtime."""
    files = collect_artifacts(cells).items()
    groups = _group_files((_describe_releases(artifact), key) for key, (_, artifact) in files)
    return tuple({"opsets": opsets, "releases": text} for text, opsets in groups.items())


def count_operators(cells: Iterable[Cell]) -> Row:
    """Return the operators of all files, with one column for opsets with equal counts."""
    files = collect_artifacts(cells).items()
    groups = _group_files(
        (tuple(sorted(artifact.operators.items())), key) for key, (_, artifact) in files
    )
    tables = [dict(counts) for counts in groups]
    return {
        "opsets": tuple(groups.values()),
        "rows": tuple(
            {"operator": name, "counts": tuple(table.get(name, 0) for table in tables)}
            for name in sorted({name for table in tables for name in table})
        ),
    }


def group_notes(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return each note once, with its opsets."""
    groups = _group_files(
        (formats.clean_message(note), find_key(cell))
        for cell in cells
        if cell.record
        for note in cell.record.notes
        if not note.startswith(INITIAL_WEIGHTS)  # the contract has it
    )
    return tuple({"opsets": opsets, "text": text} for text, opsets in groups.items())


def find_lowest_opset(cells: Iterable[Cell]) -> str:
    """Return the lowest opset from which on all cells of one model and device pass, or "".

    Opsets that the runtime of the device cannot load do not count.
    """
    loadable = (cell for cell in cells if not cell.is_beyond_runtime)
    statuses = {cell.id: cell.record.status if cell.record else None for cell in loadable}
    return "".join(map(str, find_lowest_opsets(statuses).values()))


def find_opset_runs(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return the cells of a model on one device as runs of equal marks."""
    ordered = sorted(cells, key=lambda cell: cell.id.opset)
    return tuple(
        {"opsets": format_opsets(cell.id.opset for cell in run), "mark": mark}
        for mark, run in groupby(ordered, key=lambda cell: cell.mark)
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


def build_check_table(device_name: str, cells: Sequence[Cell]) -> Row:
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
    return {"device": device_name, "checks": checks, "rows": rows, "marks": marks}


def _list_results(cell: Cell, checks: Sequence[str]) -> tuple[CheckCell | None, ...]:
    if cell.record is None:
        return (None,) * len(checks)
    results = {
        result.check: summarize_result(result.status, tuple(result.metrics.items()))
        for result in cell.record.checks
    }
    return tuple(results.get(check) for check in checks)


@lru_cache(maxsize=1 << 15, typed=True)  # called several times, and many cells are equal
def summarize_result(status: Status, metrics: tuple[tuple[str, float | str], ...]) -> CheckCell:
    """Return the mark of a check with the figures that all machines agree on."""
    texts = (_format_figure(name, value) for name, value in metrics)
    return CheckCell(mark=formats.MARKS[status], figures=tuple(text for text in texts if text))


def format_limit_share(value: float) -> str:
    """Return an error as a multiple of its limit, in steps that noise rarely crosses."""
    for share in (0.01, 0.1, 0.5, 1.0):
        if value <= share:
            return f"≤ {share:.0%} of its limit"
    return f"{format_two_digits(value)} times its limit"


def _format_figure(name: str, value: float | str) -> str:
    """Return a figure as text, or "" if it depends on the machine."""
    match name, value:
        case "of_limit", float():
            # An error of 0 and a limit of 0 have no meaningful ratio.
            return "" if value in (0.0, math.inf) else format_limit_share(value)
        case "max_abs", float():
            return f"error {formats.format_magnitude(value)}"
        case "shapes", int():
            return f"{pluralize(value, 'node')} for shapes" if value else ""
        case "copies", int():
            return pluralize(value, "copy", "copies") if value else ""
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
        latency = values.latency
        load = values.load
        memory = values.memory
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


def list_steps(trend: Sequence[Any], model_id: str) -> tuple[tuple[str, ...], ...]:
    """Return the commits at which a figure of the model changed, the newest first.

    Returns:
        The commit, the green cells, error, size, nodes and latency, as texts.
    """
    steps: list[tuple[str, ...]] = []
    before: Any = None
    for point in trend:
        figures = point.models.get(model_id)
        if figures and figures != before:
            optional = (
                "" if figures.error is None else f"{figures.error:g}",
                "" if figures.bytes is None else format_bytes(figures.bytes),
                "" if figures.nodes is None else str(figures.nodes),
                "" if figures.latency is None else f"{figures.latency:g}",
            )
            counts = f"{figures.green} of {figures.cells}"
            steps.insert(0, (str(point.commit), counts, *optional))
        before = figures
    return tuple(steps)
