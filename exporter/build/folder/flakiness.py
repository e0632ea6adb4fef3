"""Verdicts that two runs of the very same inputs do not share are marked, and stay so.

In: the folder in place and the one that takes its place. Out: records of the latter that say what
the earlier run had found.

The inputs are the same where fingerprint, sources and packages are: what a record of a crash, a
timeout or a kill does not list, so that those are never called flaky. A cell is flaky until one of
its inputs changes; another run that happens to agree proves nothing.
"""

from __future__ import annotations

from exporter.jobs.job_folder import JobFolder, write_json
from exporter.records.baseline import extract_outcome
from exporter.records.record import Record, Status

#: What the model and its file alone decide.
_SETTLED = frozenset({Status.PASS, Status.FAIL, Status.ERROR, Status.INCONCLUSIVE})


def mark_flaky(old: JobFolder, fresh: JobFolder) -> None:
    """Marks each record of `create_folder` whose verdict the very same inputs did not have in `old`."""
    if old.path.is_symlink() or not old.path.is_dir():
        return
    before = old.read_records()
    for name, record in fresh.read_records().items():
        if name in before and (said := describe_flakiness(before[name], record)):
            write_json(fresh.record(record.cell), record.model_copy(update={"flaky": said}))


def describe_flakiness(before: Record, after: Record) -> str:
    """What `Record.flaky` says of `after`; empty where nothing is known against it."""
    if not _has_same_inputs(before, after):
        return ""
    old, new = extract_outcome(before), extract_outcome(after)
    if (old.status, old.stage, old.check) == (new.status, new.stage, new.check):
        return before.flaky
    return f"was {old} in an earlier run of the very same inputs"


def _has_same_inputs(before: Record, after: Record) -> bool:
    if before.status not in _SETTLED or after.status not in _SETTLED:
        return False
    if not all(source.sha256 for source in after.sources):
        return False
    return (before.fingerprint, before.sources, before.packages) == (
        after.fingerprint,
        after.sources,
        after.packages,
    )
