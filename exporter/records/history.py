"""The baselines that were accepted one after the other: `reports/history.json`, committed.

In: the baseline before, and the one that is accepted. Out: a `History` with one `ModelEntry` more, or
the same where neither an outcome nor a tool changed. The oldest is first; there are no times, for
the order says enough and the commits know the dates.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import FrozenModel, Items
from exporter.records.baseline import Baseline, CellOutcome

HISTORY_FILE = "history.json"


class Change(FrozenModel):
    """A cell whose outcome was accepted as another one than before."""

    cell: str
    before: str
    """`error at convert`; empty where the cell was not in the baseline."""
    after: str
    """Empty where it left the baseline."""


class HistoryEntry(FrozenModel):
    """One acceptance."""

    tools: dict[str, str]
    counts: dict[str, int]
    """Cells by status."""
    changes: Items[Change] = ()
    """Against the baseline before, in the order of their cells; none where there was none."""


class History(FrozenModel):
    """Every acceptance since there is a history."""

    format: Literal[1] = 1
    entries: Items[HistoryEntry] = ()

    def to_json(self, *, indent: int | None = 2) -> str:
        """Canonical JSON with a line for each entry, so that a new one is one new line."""
        entries = ",".join(
            "\n    " + json.dumps(entry.model_dump(mode="json")) for entry in self.entries
        )
        return f'{{\n  "format": {self.format},\n  "entries": [{entries}\n  ]\n}}\n'


def extend_history(history: History, before: Baseline | None, after: Baseline) -> History:
    """The history with the new baseline at its end.

    Args:
        history: What was accepted so far.
        before: The baseline that stood; None where there was none.
        after: The one that is accepted.
    """
    changes = _changes(before, after) if before else ()
    last = history.entries[-1] if history.entries else None
    entry = HistoryEntry(
        tools=dict(sorted(after.tools.items())),
        counts=dict(sorted(Counter(outcome.status.value for outcome in after.cells).items())),
        changes=changes,
    )
    if last and not changes and (last.tools, last.counts) == (entry.tools, entry.counts):
        return history
    return History(entries=(*history.entries, entry))


def _changes(before: Baseline, after: Baseline) -> tuple[Change, ...]:
    old, new = before.by_cell(), after.by_cell()
    cells = sorted({**old, **new}.values(), key=lambda outcome: outcome.id.sort_key)
    said = [
        Change(cell=cell.cell, before=_said(old.get(cell.cell)), after=_said(new.get(cell.cell)))
        for cell in cells
    ]
    return tuple(change for change in said if change.before != change.after)


def _said(outcome: CellOutcome | None) -> str:
    return str(outcome) if outcome else ""


def read_history(path: Path) -> History:
    """Reads the history; one that does not exist is empty.

    Raises:
        ExporterError: UNREADABLE, where it is damaged or of another format.
    """
    try:
        return History.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return History()
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise ExporterError(ExitCode.UNREADABLE, message) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = (
            f"{path}: is no history of format 1: {f'{where}: ' if where else ''}{first['msg']}"
        )
        raise ExporterError(ExitCode.UNREADABLE, message) from error


def write_history(path: Path, history: History) -> None:
    """Writes the history by fresh file and rename.

    Raises:
        ExporterError: ENVIRONMENT, where it cannot be written.
    """
    write_text(path, history.to_json())
