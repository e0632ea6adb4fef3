"""The audits of a model, as its page shows them.

In: the reports folder, where audits lie beside the pages, and a model. Out: `AuditRow`s. An audit
takes minutes and is not repeated for a report: the last one of each cell is kept in git.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.records.audit import Audit
from exporter.records.record import CellId
from exporter.report.text import number_format as figures

#: The folder of audits beside the pages.
AUDITS = "audits"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorRow:
    """A change that no check noticed."""

    cell: str
    change: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One cell's audit."""

    cell: str
    mutants: int
    caught: int
    share: str
    within: int
    same: int
    by: str
    survivors: tuple[SurvivorRow, ...]


def audit_path(reports: Path, cell: CellId) -> Path:
    """Where the audit of a cell lies."""
    return reports / AUDITS / cell.model / f"{cell.opset}.{cell.device}.json"


def read_audits(reports: Path) -> dict[str, tuple[Audit, ...]]:
    """Every stored audit, by model.

    Raises:
        ExporterError: UNREADABLE, where one is damaged.
    """
    found: dict[str, list[Audit]] = {}
    for path in sorted((reports / AUDITS).glob("*/*.json")):
        try:
            audit = Audit.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            message = f"{path}: is no audit of this version; make it again or remove it"
            raise ExporterError(ExitCode.UNREADABLE, message) from error
        found.setdefault(audit.cell.model, []).append(audit)
    return {
        model: tuple(sorted(audits, key=lambda audit: audit.cell.sort_key))
        for model, audits in found.items()
    }


def audit_rows(audits: Iterable[Audit], promised: Iterable[CellId]) -> tuple[AuditRow, ...]:
    """One row for each audit of a cell that is still promised."""
    cells = {str(cell) for cell in promised}
    return tuple(_row(audit) for audit in audits if str(audit.cell) in cells)


def _row(audit: Audit) -> AuditRow:
    return AuditRow(
        cell=str(audit.cell),
        mutants=audit.mutants,
        caught=audit.caught,
        share=f"{audit.share:.1%}",
        within=audit.within,
        same=audit.unchanged,
        by=_by(audit.by),
        survivors=tuple(
            SurvivorRow(
                cell=str(audit.cell),
                change=figures.message(survivor.change),
                why=figures.message(survivor.why),
            )
            for survivor in audit.survivors
        ),
    )


def _by(counts: Mapping[str, int]) -> str:
    """The checks that caught most, first."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{check} {count}" for check, count in order)
