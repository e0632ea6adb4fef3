"""Artifacts: their sizes, their operators, and the notes of the exporter."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from exporter.core.onnxruntime_releases import (
    find_first_release,
    find_older_release,
    format_release,
)
from exporter.core.text import format_bytes
from exporter.manifest.syntax.opsets import format_opsets
from exporter.manifest.syntax.values import SEPARATOR, split_device
from exporter.records.record import INITIAL_WEIGHTS, Artifact, Record
from exporter.report.formats import clean_message, format_count
from exporter.report.rows.cells import Cell, Row

#: The toolchain and the opset of a file.
_FileKey = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """Files with the same exporter and the same figures."""

    opsets: str
    exporter: str
    """The exporter and its capture; empty if the record has no route."""
    size: str
    nodes: str
    parameters: str
    ir_version: int
    external_data: str
    """The number of files with external data. Their names contain a hash."""


def group_files(cells: Iterable[Cell]) -> tuple[FileRow, ...]:
    """Return one row for opsets with the same exporter and figures."""
    opsets: dict[FileRow, list[_FileKey]] = {}
    for opset, (record, artifact) in _collect_artifacts(cells).items():
        route = record.route
        row = FileRow(
            opsets="",
            exporter=route.title if route else "",
            size=format_bytes(artifact.bytes),
            nodes=format_count(artifact.nodes),
            parameters=format_count(artifact.parameters),
            ir_version=artifact.ir_version,
            external_data=str(len(artifact.external_data) or ""),
        )
        opsets.setdefault(row, []).append(opset)
    return tuple(replace(row, opsets=_format_files(group)) for row, group in opsets.items())


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
            opsets.setdefault(clean_message(note), []).append(_find_key(cell))
    return tuple({"opsets": _format_files(group), "text": text} for text, group in opsets.items())


def _collect_artifacts(cells: Iterable[Cell]) -> dict[_FileKey, tuple[Record, Artifact]]:
    """Return the first record with an artifact for each file."""
    artifacts: dict[_FileKey, tuple[Record, Artifact]] = {}
    for cell in cells:
        if cell.record and cell.record.artifact:
            artifacts.setdefault(_find_key(cell), (cell.record, cell.record.artifact))
    return artifacts


def _find_key(cell: Cell) -> _FileKey:
    return split_device(cell.id.device)[1], cell.id.opset


def _format_files(keys: Iterable[_FileKey]) -> str:
    """Return `18, 20; 18 @onnxscript0.6`: the opsets of each toolchain."""
    opsets: dict[str, list[int]] = {}
    for toolchain, opset in keys:
        opsets.setdefault(toolchain, []).append(opset)
    return "; ".join(
        f"{format_opsets(each)} {SEPARATOR}{toolchain}" if toolchain else format_opsets(each)
        for toolchain, each in opsets.items()
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
