"""Mark results that differ between two runs with the same inputs.

Inputs are the same if the fingerprint, the sources and the packages are. A record of a crash, a
timeout or a kill does not list its inputs and is never marked. The mark stays until an input
changes, because one more equal result proves nothing.
"""

from __future__ import annotations

from exporter.pipeline.folder.stored_records import FolderRecords
from exporter.records.baseline import extract_outcome
from exporter.records.record import Record, Status

#: Statuses that only the model and its file decide.
_DETERMINISTIC = frozenset({Status.PASS, Status.FAIL, Status.ERROR, Status.INCONCLUSIVE})


def mark_flaky(old: FolderRecords, fresh: FolderRecords) -> None:
    """Mark each new record that differs from the old one with the same inputs."""
    if old.folder.path.is_symlink() or not old.folder.path.is_dir():
        return
    for cell, record in tuple(fresh.by_cell.items()):
        before = old.by_cell.get(cell)
        if before and (text := describe_flakiness(before, record)):
            fresh.write(record.model_copy(update={"flaky": text}))


def describe_flakiness(before: Record, after: Record) -> str:
    """Return the text for `Record.flaky` of `after`, or "" if the result is not flaky."""
    if not {before.status, after.status} <= _DETERMINISTIC:
        return ""
    if after.untracked or not all(source.state for source in after.sources):
        return ""
    states = [
        {source.file: source.state for source in record.sources}
        | record.packages
        | record.variables
        for record in (before, after)
    ]
    # A run that ends with an exception reads fewer files than a complete one.
    first, second = sorted(states, key=len)
    is_partial = Status.ERROR in (before.status, after.status)
    has_same_inputs = first.items() <= second.items() if is_partial else first == second
    if before.fingerprint != after.fingerprint or not has_same_inputs:
        return ""
    old, new = extract_outcome(before), extract_outcome(after)
    if all(
        getattr(old, name) == getattr(new, name)
        for name in ("status", "stage", "check", "other_checks")
    ):
        return before.flaky
    return f"was {old} in an earlier run of the very same inputs"
