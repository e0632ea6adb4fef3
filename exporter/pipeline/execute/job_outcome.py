"""Derive the results of cells from the end of their job.

If the worker exited with 0 and wrote all records, all records count. Otherwise the record of a cell
counts if the worker announced a later one. If the worker died, the announced cells fail, and
another worker runs the rest. Each retry decides at least one cell, so retries come to an end.

If the fork server ended, all unfinished cells run again. After a few lost servers there is none.
"""

from __future__ import annotations

import os
import re
import signal
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import exporter
from exporter.cache.states import list_package_folders
from exporter.core.files import open_regular_file
from exporter.core.text import (
    is_out_of_memory,
    is_out_of_resources,
    join_names,
    memory_limit_message,
    redact,
)
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder
from exporter.pipeline.engine import ExitKind, JobResult
from exporter.processes.child_call import describe_exit
from exporter.records.record import CellId, Record, Status

_TAIL_LINES = 20
_LINE_LENGTH = 300
_TAIL_BYTES = 64 * 1024
#: The first lines of faulthandler's report about an error, and about a signal.
_REPORTS = ("Fatal Python error", "Current thread 0x")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_OWN_FOLDER = str(Path(exporter.__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The results of one job."""

    records: Mapping[CellId, Record]
    """The decided cells."""
    retry: tuple[CellId, ...] = ()
    """The cells for another worker."""


def evaluate_job(result: JobResult, records: Mapping[CellId, Record]) -> Verdict:
    """Decide the cells of a job.

    Args:
        result: The end of the job.
        records: All records in the job's folder.
    """
    cells = result.job.cells()
    written = {cell: records[cell] for cell in cells if cell in records}
    if result.exit_kind is ExitKind.EXITED and result.code == 0 and len(written) == len(cells):
        return Verdict(records=written)
    announced = result.last_announcement.cells if result.last_announcement else ()
    in_progress = [cell for cell in cells if cell in announced]
    finished = {cell: record for cell, record in written.items() if cell not in in_progress}
    unfinished = [cell for cell in cells if cell not in finished]
    match result.exit_kind:
        case ExitKind.INTERRUPTED:
            return Verdict(records=finished)
        case ExitKind.SERVER_END:
            return Verdict(records=finished, retry=tuple(unfinished))
        case ExitKind.TIMEOUT | ExitKind.SILENCE:
            late = {cell: _make_timeout(result, cell, in_progress) for cell in unfinished}
            return Verdict(records=finished | late)
        case ExitKind.EXITED | ExitKind.SIGNAL:
            culprits = [cell for cell in unfinished if cell in in_progress] or unfinished
            dead = {cell: _make_crash(result, cell) for cell in culprits}
            retry = tuple(cell for cell in unfinished if cell not in dead)
            return Verdict(records=finished | dead, retry=retry)
        case _:
            assert_never(result.exit_kind)


def restrict_job(job: Job, cells: Iterable[CellId]) -> Job:
    """Return the job with only some of its cells."""
    selected = {(cell.opset, cell.device) for cell in cells}
    opsets = []
    for opset in job.opsets:
        devices = tuple(d for d in opset.devices if (opset.opset, d.name) in selected)
        if devices:
            opsets.append(opset.model_copy(update={"devices": devices}))
    return job.model_copy(update={"opsets": tuple(opsets)})


def read_log_tail(job: Job, announcement: Announcement | None) -> str:
    """Return the end of the last log.

    Returns:
        The crash report, or the last lines, or "" if there is no log.
    """
    lines = _read_last_lines(job, announcement)
    starts = [index for index, line in enumerate(lines) if line.startswith(_REPORTS)]
    # An error has the stack of its thread below its first line.
    errors = [index for index in starts if lines[index].startswith(_REPORTS[0])]
    first = errors[-1] if errors else starts[0] if starts else None
    lines = lines[-_TAIL_LINES:] if first is None else lines[first:][:_TAIL_LINES]
    return "\n".join(redact(line, limit=_LINE_LENGTH) for line in lines)


def find_stack_line(job: Job, announcement: Announcement | None) -> str:
    """Return the innermost line of the project in faulthandler's report, or ""."""
    lines = _read_last_lines(job, announcement)
    first = next((index for index, line in enumerate(lines) if line.startswith(_REPORTS)), None)
    others = tuple(
        str(Path(folder).resolve())
        for folder in (_OWN_FOLDER, *list_package_folders(), sysconfig.get_path("stdlib"))
    )
    root = str(Path(job.root).resolve()) + os.sep
    for line in lines[first:] if first is not None else ():
        match = _FRAME.search(line)
        if match and match["file"].startswith(root) and not match["file"].startswith(others):
            return f"{match['file'].removeprefix(root)}:{match['line']}"
    return ""


def _read_last_lines(job: Job, announcement: Announcement | None) -> list[str]:
    log = JobFolder(Path(job.folder)).log(None)
    if announcement:
        log = log.with_name(Path(announcement.log).name)
    try:
        with open_regular_file(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _make_crash(result: JobResult, cell: CellId) -> Record:
    is_kill = result.exit_kind is ExitKind.SIGNAL and result.code == signal.SIGKILL
    limit = result.job.spec.memory
    phrase = describe_exit(-result.code if result.exit_kind is ExitKind.SIGNAL else result.code)
    message = f"the worker {phrase} {_describe_progress(result)}"
    tail = "" if is_kill else read_log_tail(result.job, result.last_announcement)
    # C++ aborts if an allocation fails. Without a limit, the machine may lack memory.
    if limit is not None and is_out_of_memory(tail):
        message = f"{memory_limit_message(limit)}: {message}"
        return _make_record(result, cell, Status.KILLED, message)
    status = Status.KILLED if is_kill else Status.CRASH
    causes = [line for line in tail.splitlines() if is_out_of_resources(line)]
    return _make_record(result, cell, status, f"{message}: {causes[-1]}" if causes else message)


def _make_timeout(result: JobResult, cell: CellId, in_progress: Sequence[CellId]) -> Record:
    is_silent = result.exit_kind is ExitKind.SILENCE
    problem = "used no CPU time and made no progress for" if is_silent else "took longer than"
    limit = f"{result.job.spec.timeout:g} s{'' if is_silent else ' of CPU time'}"
    reason = f"the model's job {problem} {limit}, and ended {_describe_progress(result)}"
    if cell in in_progress or not in_progress:
        return _make_record(result, cell, Status.TIMEOUT, reason)
    culprits = [str(other) for other in in_progress]
    message = f"not reached: {reason} for {join_names(culprits, limit=1)}"
    return _make_record(result, cell, Status.TIMEOUT, message, is_culprit=False)


def _describe_progress(result: JobResult) -> str:
    announcement = result.last_announcement
    return f"while at {announcement.stage}" if announcement else "before its first stage"


def _make_record(
    result: JobResult, cell: CellId, status: Status, message: str, *, is_culprit: bool = True
) -> Record:
    job, announcement = result.job, result.last_announcement
    line = find_stack_line(job, announcement) if is_culprit else ""
    return Record(
        cell=cell,
        status=status,
        stage=announcement.stage if announcement and is_culprit else None,
        message=message,
        lines=(line,) if line else (),
        detail=read_log_tail(job, announcement) if is_culprit else "",
        route=next(opset.route for opset in job.opsets if opset.opset == cell.opset),
        log=announcement.log if announcement else f"{cell.model}/logs/model.log",
        fingerprint=job.make_fingerprint(cell),
    )
