"""What the end of a job means for its cells.

In: an `JobResult`, and the records and the log that the worker left. Out: a `Verdict`: a record for
every cell that is settled, and the cells that another worker has to try.

A record counts if the worker finished everything and exited with 0, or had announced something
later. The cells that were at work when it died are settled as the culprits; all others get another
worker. Each retry settles at least one cell, so that retries end.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from exporter.build.engine import ExitKind, JobResult
from exporter.core.resources import is_out_of_memory, is_out_of_resources, memory_limit_message
from exporter.core.sanitize import redact
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder
from exporter.records.record import CellId, Record, Status

_TAIL_LINES = 20
_LINE_LENGTH = 300
_TAIL_BYTES = 64 * 1024
#: The line with which faulthandler starts its report.
_FATAL = "Fatal Python error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one job settled, and what it left over."""

    settled: Mapping[str, Record]
    """By the text of the cell."""
    retry: tuple[CellId, ...] = ()


def evaluate_job(outcome: JobResult, records: Mapping[str, Record]) -> Verdict:
    """Settles what the outcome says about the cells of its job.

    Args:
        outcome: How the job ended.
        records: Every record in the folder of the job, by the text of its cell.
    """
    cells = {str(cell): cell for cell in outcome.job.cells()}
    written = {name: record for name, record in records.items() if name in cells}
    if outcome.exit_kind is ExitKind.EXITED and outcome.code == 0 and len(written) == len(cells):
        return Verdict(settled=written)
    announced = outcome.last_announcement.cells if outcome.last_announcement else ()
    at_work = {str(cell) for cell in announced} & set(cells)
    settled = {name: record for name, record in written.items() if name not in at_work}
    unfinished = [cell for name, cell in cells.items() if name not in settled]
    match outcome.exit_kind:
        case ExitKind.INTERRUPTED:
            return Verdict(settled=settled)
        case ExitKind.TIMEOUT:
            late = {str(cell): _late(outcome, cell, at_work) for cell in unfinished}
            return Verdict(settled=settled | late)
        case ExitKind.EXITED | ExitKind.SIGNAL:
            culprits = [cell for cell in unfinished if str(cell) in at_work] or unfinished
            dead = {str(cell): _dead(outcome, cell) for cell in culprits}
            retry = tuple(cell for cell in unfinished if str(cell) not in dead)
            return Verdict(settled=settled | dead, retry=retry)
        case _:
            assert_never(outcome.exit_kind)


def restrict_job(job: Job, cells: Iterable[CellId]) -> Job:
    """The same job for some of its cells."""
    wanted = {(cell.opset, cell.device) for cell in cells}
    opsets = (
        opset.model_copy(
            update={
                "devices": tuple(d for d in opset.devices if (opset.opset, d.name) in wanted),
            }
        )
        for opset in job.opsets
    )
    return job.model_copy(update={"opsets": tuple(opset for opset in opsets if opset.devices)})


def read_log_tail(job: Job, announcement: Announcement | None) -> str:
    """The end of the log that was written last: from a crash report on, or its last lines."""
    folder = JobFolder(Path(job.folder))
    log = folder.log(None)
    if announcement:
        log = log.with_name(Path(announcement.log).name)
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    fatal = [index for index, line in enumerate(lines) if _FATAL in line]
    lines = lines[fatal[-1] :][:_TAIL_LINES] if fatal else lines[-_TAIL_LINES:]
    return "\n".join(redact(line, limit=_LINE_LENGTH) for line in lines)


def _dead(outcome: JobResult, cell: CellId) -> Record:
    is_kill = outcome.exit_kind is ExitKind.SIGNAL and outcome.code == signal.SIGKILL
    status = Status.KILLED if is_kill else Status.CRASH
    limit = outcome.job.spec.memory
    message = f"the worker {_how(outcome)} {_when(outcome)}"
    tail = "" if is_kill else read_log_tail(outcome.job, outcome.last_announcement)
    # C++ aborts where it finds no memory; without a limit that may be the machine's own fault.
    if limit is not None and is_out_of_memory(tail):
        return _record(outcome, cell, Status.KILLED, f"{memory_limit_message(limit)}: {message}")
    last = [line for line in tail.splitlines() if is_out_of_resources(line)]
    return _record(outcome, cell, status, f"{message}: {last[-1]}" if last else message)


def _late(outcome: JobResult, cell: CellId, at_work: set[str]) -> Record:
    limit = f"the model's job took longer than {outcome.job.spec.timeout:g} s"
    if str(cell) in at_work or not at_work:
        return _record(outcome, cell, Status.TIMEOUT, f"{limit}, and ended {_when(outcome)}")
    first, *others = (str(cell) for cell in outcome.job.cells() if str(cell) in at_work)
    culprit = f"{first} and {len(others)} more" if others else first
    message = f"not reached: {limit}, and ended {_when(outcome)} for {culprit}"
    return _record(outcome, cell, Status.TIMEOUT, message, is_culprit=False)


def _how(outcome: JobResult) -> str:
    if outcome.exit_kind is ExitKind.EXITED:
        return f"exited with code {outcome.code}"
    if outcome.code == signal.SIGKILL:
        return "was killed (SIGKILL, most often for its memory)"
    try:
        return f"died of {signal.Signals(outcome.code).name}"
    except ValueError:
        return f"died of signal {outcome.code}"


def _when(outcome: JobResult) -> str:
    return (
        f"while at {outcome.last_announcement.stage}"
        if outcome.last_announcement
        else "before it began"
    )


def _record(
    outcome: JobResult, cell: CellId, status: Status, message: str, *, is_culprit: bool = True
) -> Record:
    job, announcement = outcome.job, outcome.last_announcement
    return Record(
        cell=cell,
        status=status,
        stage=announcement.stage if announcement and is_culprit else None,
        message=message,
        detail=read_log_tail(job, announcement) if is_culprit else "",
        route=next(opset.route for opset in job.opsets if opset.opset == cell.opset),
        log=announcement.log if announcement else f"{cell.model}/logs/model.log",
        fingerprint=job.make_fingerprint(cell),
    )
