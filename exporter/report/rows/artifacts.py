"""What was shipped: files, their operators, and what the exporter noted on the way.

In: a model's `Cell`s. Out: rows; opsets with the same file figures, the same operators or the same
note share one. All devices check the same file, so that an opset counts once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from exporter.core import onnxruntime_releases as support
from exporter.records.record import Artifact, Record
from exporter.report.rows.cells import Cell
from exporter.report.rows.opset_ranges import fold_opsets
from exporter.report.text import number_format as figures


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """Files that are alike."""

    opsets: str
    exporter: str
    """The exporter and its capture; empty where the record names none."""
    size: str
    nodes: str
    parameters: str
    ir_version: int
    external_data: str
    """How many files lie beside the model: their names hold a hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRow:
    """Files that the same releases of ONNX Runtime load."""

    opsets: str
    releases: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCount:
    """One operator, and how often each range of opsets has it."""

    operator: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCounts:
    """Operators by ranges of opsets that have the same."""

    opsets: tuple[str, ...]
    rows: tuple[OperatorCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that was noted while a file was made."""

    opsets: str
    text: str


def files(cells: Iterable[Cell]) -> tuple[FileRow, ...]:
    """One row for opsets whose files are of the same make and size."""
    opsets: dict[tuple[str, ...], list[int]] = {}
    for opset, (record, artifact) in _files(cells).items():
        opsets.setdefault(_make(record, artifact), []).append(opset)
    return tuple(
        FileRow(
            opsets=fold_opsets(alike),
            exporter=exporter,
            size=size,
            nodes=nodes,
            parameters=parameters,
            ir_version=int(ir_version),
            external_data=external_data,
        )
        for (exporter, size, nodes, parameters, ir_version, external_data), alike in opsets.items()
    )


def runtimes(cells: Iterable[Cell]) -> tuple[RuntimeRow, ...]:
    """From which release of ONNX Runtime on each file runs, opsets with the same one together."""
    opsets: dict[str, list[int]] = {}
    for opset, (_, artifact) in _files(cells).items():
        opsets.setdefault(_releases(artifact), []).append(opset)
    return tuple(
        RuntimeRow(opsets=fold_opsets(alike), releases=releases)
        for releases, alike in opsets.items()
    )


def operators(cells: Iterable[Cell]) -> OperatorCounts:
    """Every operator of every file."""
    opsets: dict[Hashable, list[int]] = {}
    counts: dict[Hashable, dict[str, int]] = {}
    for opset, (_, artifact) in _files(cells).items():
        key = frozenset(artifact.operators.items())
        opsets.setdefault(key, []).append(opset)
        counts[key] = artifact.operators
    names = sorted({name for table in counts.values() for name in table})
    return OperatorCounts(
        opsets=tuple(fold_opsets(alike) for alike in opsets.values()),
        rows=tuple(
            OperatorCount(operator=name, counts=tuple(counts[key].get(name, 0) for key in opsets))
            for name in names
        ),
    )


def notes(cells: Iterable[Cell]) -> tuple[Note, ...]:
    """Every note once, with the opsets that it was made at."""
    opsets: dict[str, list[int]] = {}
    for cell in cells:
        for note in cell.record.notes if cell.record else ():
            opsets.setdefault(figures.message(note), []).append(cell.id.opset)
    return tuple(Note(opsets=fold_opsets(alike), text=text) for text, alike in opsets.items())


def _files(cells: Iterable[Cell]) -> dict[int, tuple[Record, Artifact]]:
    found: dict[int, tuple[Record, Artifact]] = {}
    for cell in cells:
        if cell.record and cell.record.artifact:
            found.setdefault(cell.id.opset, (cell.record, cell.record.artifact))
    return found


def _releases(artifact: Artifact) -> str:
    opset, ir_version = artifact.opset_imports.get("", 0), artifact.ir_version
    first = support.first_release(opset, ir_version)
    said = f"{support.spelled(first)} and later" if first else "no release that is known"
    if gain := support.lower_ir_version(opset, ir_version):
        older = support.spelled(gain.release)
        said += (
            f", for IR version {ir_version}; ir_version = {gain.ir_version} would do for {older}"
        )
    others = sorted(domain for domain in artifact.opset_imports if domain)
    return f"{said}, with kernels of {', '.join(others)}" if others else said


def _make(record: Record, artifact: Artifact) -> tuple[str, ...]:
    route = record.route
    beside: Sequence[str] = artifact.external_data
    return (
        f"{route.exporter} ({route.capture})" if route else "",
        figures.size(artifact.bytes),
        figures.count(artifact.nodes),
        figures.count(artifact.parameters),
        str(artifact.ir_version),
        str(len(beside)) if beside else "",
    )
