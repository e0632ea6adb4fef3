"""The page `index.html`: every promised cell with its record, as plain values.

`index.js` reads them. A key without content is omitted; see `_drop_empty`.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from exporter.core.device_name import DeviceName
from exporter.core.text import (
    format_bytes,
    format_command,
    format_two_digits,
    join_lines,
    pluralize,
    replace_invisible,
)
from exporter.manifest import Manifest, ModelSpec, Project, Style
from exporter.records.baseline import Baseline
from exporter.records.record import CellId, Record, RunRecord, Status
from exporter.report import formats
from exporter.report.pages.model_page import find_lowest_opset, summarize_result
from exporter.report.pages.templates import read_template_file, render_html
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    Row,
    collect_cells,
    format_changed_tools,
    format_export_tools,
    format_head,
)
from exporter.report.rows.failure_clusters import cluster_cells
from exporter.report.rows.failure_reasons import explain_failure, keep_last_lines

INDEX = "index.html"
#: In JSON, these characters occur only in strings. As escapes, they cannot end the script element.
_ESCAPES = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
#: Multiples of the limit that float errors rarely cross from one machine to another.
_STEPS = (0.01, 0.1, 0.5, 1.0)
#: The figures of a model at a commit.
_FIGURES = ("green", "error", "bytes", "nodes", "latency")


def build_index_data(
    manifest: Manifest,
    run: RunRecord,
    by_model: Mapping[str, Sequence[Cell]],
    history: AcceptanceHistory,
) -> tuple[Row, tuple[Row, ...]]:
    """Return the data for the whole page, and one row for each model on each device."""
    cells = [cell for each in by_model.values() for cell in each]
    clusters = cluster_cells((cell for cell in cells if cell.is_red), manifest, history)
    indices: dict[CellId, list[int]] = {}
    for index, cluster in enumerate(clusters):
        for id in cluster["members"]:
            indices.setdefault(id, []).append(index)
    rows = tuple(
        _build_row(spec, device_name, by_model[spec.id], manifest.project, history, indices)
        for spec in manifest.models
        for device_name in dict.fromkeys(spec.devices)
    )
    head = {
        "project": join_lines(manifest.project.name),
        "summary": format_head(cells),
        "marks": _count_marks(cells, manifest.project.style),
        "devices": tuple(dict.fromkeys(row["device"] for row in rows)),
        "tools": tuple(
            (join_lines(name), join_lines(version)) for name, version in sorted(run.tools.items())
        ),
    }
    optional = {
        "export_tools": format_export_tools(run.tools),
        # New failures first, then the largest.
        "clusters": tuple(_describe_cluster(cluster) for cluster in clusters),
        "commits": tuple(str(point.commit) for point in history.trend),
        "trend": _drop_empty({"green": tuple(point.green for point in history.trend)}),
        "trends": _list_trends(manifest, history) if history.trend else {},
        "compared_with": "the baseline" if history.baseline else "",
        "problems": tuple(join_lines(str(problem)) for problem in manifest.problems),
    }
    return head | _drop_empty(optional), rows


def _list_trends(manifest: Manifest, history: AcceptanceHistory) -> dict[str, Row]:
    """Return the figures of each model at each commit; None where there is none."""
    trends: dict[str, Row] = {}
    for spec in manifest.models:
        points = [point.models.get(spec.id) for point in history.trend]
        trends[spec.id] = {
            key: tuple(point and getattr(point, key) for point in points) for key in _FIGURES
        }
    return trends


def _drop_empty(values: Row) -> Row:
    """Return the values except "", None, False and empty containers; 0 is a value."""
    return {
        key: value
        for key, value in values.items()
        if value or (isinstance(value, int | float) and value is not False)
    }


def _describe_cluster(cluster: Row) -> Row:
    affected = cluster["affected"]
    models = f"{affected['models']} models" if affected["models"] > 1 else cluster["model"]
    return _drop_empty(
        {
            "title": join_lines(
                f"{cluster['outcome']}: {pluralize(affected['cells'], 'cell')} of {models}"
            ),
            "reason": join_lines(cluster["reason"]),
            "operator": join_lines(cluster["operator"]),
            "is_new": cluster["is_new"],
        }
    )


def _list_operators(cells: Iterable[Cell]) -> str:
    """Return the operators of the files and the missing ones, for a search."""
    records = [cell.record for cell in cells if cell.record]
    names = {name for record in records if record.artifact for name in record.artifact.operators}
    names |= {item.operator for record in records for item in record.missing}
    return join_lines(" ".join(sorted(names)))


def _count_marks(cells: Iterable[Cell], style: Style) -> tuple[Row, ...]:
    words = [cell.mark.word for cell in cells]
    marks = []
    for status, mark in formats.MARKS.items():
        family = "open"
        if status is Status.XFAIL:
            family = "foreseen"
        elif status.is_green:
            family = "good"
        elif status.is_red:
            family = "bad"
        marks.append((family, mark))
    if formats.ELSEWHERE.word in words:
        marks.append(("open", formats.ELSEWHERE))
    return tuple(
        {
            "word": mark.word,
            "symbol": mark.symbol if style == "emoji" else mark.letter,
            "letter": mark.letter,
            "meaning": mark.meaning,
            "family": family,  # defines the form and the color
            "cells": words.count(mark.word),
        }
        for family, mark in (*marks, ("open", formats.NOT_RUN))
    )


def _index(items: list[Any], item: Any) -> int:
    """Return the index of the item; equal items are stored once."""
    if item not in items:
        items.append(item)
    return items.index(item)


def _build_row(
    spec: ModelSpec,
    device_name: str,
    model_cells: Sequence[Cell],
    project: Project,
    history: AcceptanceHistory,
    clusters: Mapping[CellId, Sequence[int]],
) -> Row:
    outcomes: list[Row] = []
    checks: list[tuple[Row, ...]] = []
    files: list[Row] = []
    cells = [cell for cell in model_cells if cell.id.device == device_name]
    data = []
    for cell in cells:
        record = cell.record or Record(cell=cell.id, status=Status.SKIP)
        limits = (each.metrics.get("of_limit") for each in record.checks)
        shares = [math.inf if math.isnan(x) else x for x in limits if isinstance(x, int | float)]
        error = max(shares, default=-math.inf)
        rounded = float(format_two_digits(error)) if math.isfinite(error) else None
        file, reasons = _describe_file(record), explain_failure(record, project)
        optional = {
            "file": _index(files, file) if file else None,
            # As a multiple of the limit, rounded up.
            "error": next((step for step in _STEPS if 0 <= error <= step), rounded),
            # Different shapes, NaN, or a limit of 0.
            "is_unbounded": error == math.inf,
            "log": join_lines(f"{project.build}/{record.log}") if record.log else "",
            "export_command": join_lines(cell.format_command(project.command)),
            "repro_command": join_lines(reasons["repro_command"]),
            "guide_command": reasons["code"]
            and format_command(project.command, "guide", reasons["code"]),
            "is_changed": history.is_changed(cell),
            "clusters": tuple(clusters.get(cell.id, ())),
        }
        indices = {
            "outcome": _index(outcomes, _describe_outcome(cell, history, reasons)),
            "checks": _index(
                checks,
                tuple(
                    _describe_result(
                        each.check, each.status, each.message, tuple(each.metrics.items())
                    )
                    for each in record.checks
                ),
            ),
        }
        required = {"opset": cell.id.opset, "mark": cell.mark.word, **indices}
        data.append(required | _drop_empty(optional))
    is_red = any(cell.is_red for cell in cells)
    settings = {each.name: each.settings for each in project.devices}
    head = {
        "model": spec.id,
        "device": join_lines(device_name),
        "page": f"models/{formats.quote_link_target(spec.id)}.md",
        "location": join_lines(str(spec.location)) if is_red else "",
        "description": join_lines(spec.description),
        "tags": join_lines(", ".join(spec.tags)),
        "owner": join_lines(spec.owner),
        "settings": join_lines(settings.get(DeviceName(device_name).base, "")),
        "lowest_opset": find_lowest_opset(cells),
        "operators": _list_operators(cells),
    }
    return _drop_empty(head) | {
        "outcomes": outcomes,
        "checks": checks,
        "files": files,
        "cells": data,
    }


def _describe_outcome(cell: Cell, history: AcceptanceHistory, reasons: Row) -> Row:
    record = cell.record
    if record is None:
        return {"outcome": cell.outcome, "reason": cell.reason}
    missing = (
        item | {key: join_lines(item[key]) for key in ("operator", "sources")}
        for item in reasons["missing_operators"]
    )
    is_known = cell.is_pass and not history.is_changed(cell)
    return _drop_empty(
        {
            "outcome": join_lines(cell.outcome),
            "stage": record.stage,
            "check": join_lines(record.check or ""),
            "reason": cell.reason,
            "expected_reason": cell.expected_reason,
            "acceptance": "" if is_known else history.describe(cell),
            "lines": join_lines(", ".join(reasons["lines"])),
            "code": reasons["code"],
            "culprit": reasons["culprit"],
            "sample": join_lines(reasons["sample"]),
            "divergence": join_lines(reasons["divergence"]),
            "evidence": reasons["evidence"],
            "missing": tuple(_drop_empty(each) for each in missing),
            "advice": tuple(join_lines(line) for line in reasons["advice"]),
            "detail": keep_last_lines(formats.clean_detail(record.detail)),
            "notes": tuple(formats.clean_message(note) for note in record.notes),
            "flaky": formats.clean_message(record.flaky),
        }
    )


@lru_cache(maxsize=1 << 15, typed=True)  # many cells have equal results
def _describe_result(
    check: str, status: Status, message: str, metrics: tuple[tuple[str, int | float | str], ...]
) -> Row:
    texts = summarize_result(status, metrics).figures
    if status is not Status.PASS:  # the user needs the digits for the fix
        texts = tuple(f"{name} {format_two_digits(value)}" for name, value in metrics)
    return _drop_empty(
        {
            "check": join_lines(check),
            "mark": formats.MARKS[status].word,
            "message": formats.clean_message(message),
            "figures": join_lines(", ".join(texts)),
        }
    )


def _describe_file(record: Record) -> Row:
    route, artifact = record.route, record.artifact
    if artifact is None:
        return {}
    return {
        "exporter": route.title if route else "",
        "size": format_bytes(artifact.bytes),
        "bytes": int(float(f"{artifact.bytes:.3g}")),
        "nodes": formats.format_count(artifact.nodes),
        "parameters": formats.format_count(artifact.parameters),
        "ir_version": artifact.ir_version,
    }


def render_index(head: Row, rows: Sequence[Row], templates: Path | None, stamp: str = "") -> str:
    """Return `index.html`, which works from a disk and needs no network.

    The content security policy of the page contains the hashes of its script and style. It allows
    no other resources.

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    script, style = (read_template_file(name, templates) for name in ("index.js", "index.css"))
    lines = ",\n".join(map(_format_json, rows))
    return render_html(
        INDEX,
        templates,
        data=f'{{"head":{_format_json(head)},\n"rows":[\n{lines}\n]}}',
        project=head["project"],
        summary=head["summary"],
        export_tools=head.get("export_tools", ""),
        stamp=stamp,
        problems=head.get("problems", ()),
        script=script,
        style=style,
        script_hash=_hash_source(script),
        style_hash=_hash_source(style),
    )


def render_comparison(
    manifest: Manifest, run: RunRecord, before: Baseline, templates: Path | None
) -> str:
    """Return `index.html` of results, with a mark at each cell whose outcome changed.

    The folder `templates` need not exist.

    Raises:
        ExporterError: MANIFEST, if a template is invalid.
    """
    by_model = collect_cells(manifest, run)
    head, rows = build_index_data(manifest, run, by_model, AcceptanceHistory(before))
    changes = format_changed_tools(before.tools, run.tools)
    stamp = f"compared with {format_export_tools(before.tools) or 'the first file'}"
    text = f"{stamp}; changed: {changes}" if changes else stamp
    return render_index(head | {"compared_with": "the first file"}, rows, templates, text)


def _format_json(value: Row) -> str:
    text = replace_invisible(to_json(value).decode())
    for character, escape in _ESCAPES.items():  # ten times as fast as `str.translate`
        text = text.replace(character, escape)
    return text


def _hash_source(text: str) -> str:
    """Return a source expression of Content Security Policy level 3."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
