"""The audits of a model, as rows of its page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.records.audit import Audit
from exporter.records.record import CellId
from exporter.report.text import number_format as figures

#: The folder of audits in the reports folder.
AUDITS = "audits"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorRow:
    """A mutant that passed all checks."""

    cell: str
    change: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """The audit of one cell."""

    cell: str
    mutants: int
    caught: int
    share: str
    within: int
    same: int
    by: str
    survivors: tuple[SurvivorRow, ...]


def locate_audit(reports: Path, cell: CellId) -> Path:
    """Return the path of a cell's audit."""
    return reports / AUDITS / cell.model / f"{cell.opset}.{cell.device}.json"


def read_audits(reports: Path) -> dict[str, tuple[Audit, ...]]:
    """Return all stored audits by model.

    Raises:
        ExporterError: UNREADABLE, if a file is damaged or has an old format.
    """
    by_model: dict[str, list[Audit]] = {}
    for path in sorted((reports / AUDITS).glob("*/*.json")):
        try:
            audit = Audit.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            message = f"{path}: no audit of this version; run `exporter audit` or remove the file"
            raise ExporterError(ExitCode.UNREADABLE, message) from error
        by_model.setdefault(audit.cell.model, []).append(audit)
    return {
        model: tuple(sorted(audits, key=lambda audit: audit.cell.sort_key))
        for model, audits in by_model.items()
    }


def build_audit_rows(audits: Iterable[Audit], promised: Iterable[CellId]) -> tuple[AuditRow, ...]:
    """Return one row for each audit of a promised cell."""
    cells = set(promised)
    return tuple(_build_row(audit) for audit in audits if audit.cell in cells)


def _build_row(audit: Audit) -> AuditRow:
    most_first = sorted(audit.caught_by.items(), key=lambda item: (-item[1], item[0]))
    return AuditRow(
        cell=str(audit.cell),
        mutants=audit.mutants,
        caught=audit.caught,
        share=f"{audit.share:.1%}",
        within=audit.within,
        same=audit.unchanged,
        by=", ".join(f"{check} {count}" for check, count in most_first),
        survivors=tuple(
            SurvivorRow(
                cell=str(audit.cell),
                change=figures.clean_message(survivor.change),
                reason=figures.clean_message(survivor.reason),
            )
            for survivor in audit.survivors
        ),
    )
