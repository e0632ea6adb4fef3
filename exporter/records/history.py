"""The sequence of accepted baselines: `reports/history.json`, committed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_text
from exporter.core.frozen_model import FrozenModel, Items
from exporter.records.baseline import Baseline, CellText
from exporter.records.record import format_validation_error

HISTORY_FILE = "history.json"


class OutcomeChange(FrozenModel):
    """A cell with another accepted outcome than before."""

    cell: CellText
    before: str
    """`error at convert`; empty if the cell was not in the baseline."""
    after: str
    """Empty if the cell is no longer in the baseline."""


class HistoryEntry(FrozenModel):
    """One accepted baseline."""

    tools: dict[str, str]
    counts: dict[str, int]
    """Cells by status."""
    changes: Items[OutcomeChange] = ()
    """Changes of the previous baseline in the order of the cells; none for the first baseline."""


class History(FrozenModel):
    """All accepted baselines."""

    format: Literal[1] = 1
    entries: Items[HistoryEntry] = ()

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return canonical JSON with one line per entry, for small diffs."""
        entries = ",".join(
            "\n    " + json.dumps(entry.model_dump(mode="json")) for entry in self.entries
        )
        return f'{{\n  "format": {self.format},\n  "entries": [{entries}\n  ]\n}}\n'


def extend_history(history: History, before: Baseline | None, after: Baseline) -> History:
    """Return the history with the new baseline at its end."""
    old = {cell: str(outcome) for cell, outcome in before.by_cell().items()} if before else {}
    new = {cell: str(outcome) for cell, outcome in after.by_cell().items()}
    changed = [cell for cell in {**old, **new} if old.get(cell) != new.get(cell)]
    changed.sort(key=lambda cell: cell.sort_key)
    last = history.entries[-1] if history.entries else None
    entry = HistoryEntry(
        tools=dict(sorted(after.tools.items())),
        counts=dict(sorted(Counter(outcome.status.value for outcome in after.cells).items())),
        changes=tuple(
            OutcomeChange(cell=cell, before=old.get(cell, ""), after=new.get(cell, ""))
            for cell in changed
            if before
        ),
    )
    is_same = last and (last.tools, last.counts) == (entry.tools, entry.counts)
    if is_same and not entry.changes:
        return history
    return History(entries=(*history.entries, entry))


def read_history(path: Path) -> History:
    """Read the history; return an empty one if the file does not exist.

    Raises:
        ExporterError: UNREADABLE if it is damaged or has another format.
    """
    try:
        return History.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return History()
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    except ValidationError as error:
        message = f"{path}: is not a history of format 1: {format_validation_error(error)}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error


def write_history(path: Path, history: History) -> None:
    """Write the history atomically.

    Raises:
        ExporterError: ENVIRONMENT if it cannot be written.
    """
    write_text(path, history.to_json())
