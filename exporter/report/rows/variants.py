"""The variants of an entry: what each function of a variant changes in size and error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from exporter.core.text import format_bytes
from exporter.manifest import ModelSpec
from exporter.records.record import Artifact, Record
from exporter.report import formats
from exporter.report.rows.artifacts import FileKey, collect_artifacts, format_files
from exporter.report.rows.cells import Cell, Row


def build_rows(
    models: Iterable[ModelSpec], by_model: Mapping[str, Sequence[Cell]]
) -> tuple[Row, ...]:
    """Return each entry that variants with passes extend, followed by its variants."""
    specs = list(models)
    rows: list[Row] = []
    for parent in dict.fromkeys(spec.parent for spec in specs if spec.parent):
        exported = collect_artifacts(by_model.get(parent, ()))
        rows += _list_sizes(parent, "", by_model.get(parent, ()), exported)
        for spec in specs:
            if spec.parent == parent:
                calls = ", ".join(each.call for each in spec.passes)
                rows += _list_sizes(spec.id, calls, by_model[spec.id], exported)
    return tuple(rows)


def _list_sizes(
    model_id: str,
    passes: str,
    cells: Sequence[Cell],
    exported: Mapping[FileKey, tuple[Record, Artifact]],
) -> Iterator[Row]:
    """Yield one row for the opsets with equal figures; sizes are relative to the parent's."""
    opsets: dict[tuple[str, str, str], list[FileKey]] = {}
    for key, (record, artifact) in collect_artifacts(cells).items():
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
            "model": model_id,
            "passes": passes,
            "opsets": format_files(group),
            "size": size,
            "nodes": nodes,
            "error": error,
        }
