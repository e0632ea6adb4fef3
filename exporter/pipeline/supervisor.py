"""Handle the events of jobs: decide their cells, retry, and replace model folders.

If the worker exited with 0 and wrote all records, all records count. Otherwise the record of a cell
counts if the worker announced a later one. If the worker died, the announced cells fail, and
another worker runs the rest. Each retry decides at least one cell, so retries come to an end.
If the fork server ended, all unfinished cells run again. After a few lost servers there is none.
A part of a model cannot replace the model's folder on its own: the other parts start from that
folder, and their results could not be carried over.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import sysconfig
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import exporter
from exporter.cache.states import list_package_folders
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import PROJECT_LIMIT, open_regular_file
from exporter.core.text import (
    is_out_of_memory,
    is_out_of_resources,
    join_names,
    memory_limit_message,
    pluralize,
    redact,
)
from exporter.jobs import Announcement, Job, JobFolder, Reference, write_json
from exporter.manifest import Manifest
from exporter.pipeline.build_folder import (
    FolderRecords,
    StoredRecords,
    carry_over,
    mark_flaky,
    remove_unrecorded_files,
    repair_folder,
)
from exporter.pipeline.decisions import (
    BuildOptions,
    Decisions,
    RecordValidator,
    ResultCache,
    find_valid_record,
)
from exporter.pipeline.engine import Engine, ExitKind, JobResult, Task, end_jobs
from exporter.pipeline.schedule import make_opset_jobs
from exporter.planning.plan import Plan
from exporter.processes.child_call import describe_exit
from exporter.records.record import CellId, Record, Stage, Status

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
    cells = result.job.cells()
    written = {cell: records[cell] for cell in cells if cell in records}
    if result.exit_kind is ExitKind.EXITED and result.code == 0 and len(written) == len(cells):
        return Verdict(records=written)
    last = result.last_announcement
    # A diagnosis changes no verdict, even if it ends the worker.
    announced = last.cells if last and not last.is_diagnosis else ()
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
            culprits = [cell for cell in unfinished if cell in in_progress]
            if not culprits and not (last and last.is_diagnosis and finished):
                culprits = unfinished
            dead = {cell: _make_crash(result, cell) for cell in culprits}
            retry = tuple(cell for cell in unfinished if cell not in dead)
            return Verdict(records=finished | dead, retry=retry)
        case _:
            assert_never(result.exit_kind)


def may_succeed_alone(result: JobResult, record: Record) -> bool:
    """Return whether other jobs can be the reason for the end of a cell.

    The system kills a worker if all workers together exceed the memory, and the limit of wall time
    depends on the load of the machine. The limit of CPU time does not, nor that of silence: a
    process that uses less than a hundredth of a core waits for something else.
    """
    if not result.has_company:
        return False
    limit = result.job.spec.memory
    if record.status is Status.KILLED:
        return limit is None or not record.message.startswith(memory_limit_message(limit))
    is_late = record.status is Status.TIMEOUT and result.exit_kind is ExitKind.TIMEOUT
    return is_late and result.seconds < result.job.spec.timeout


def restrict_job(job: Job, cells: Iterable[CellId]) -> Job:
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
    if errors:
        lines = lines[errors[-1] :][:_TAIL_LINES]
    elif starts:
        lines = lines[starts[0] :][:_TAIL_LINES]
    else:
        lines = lines[-_TAIL_LINES:]
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
    if first is not None:
        for line in lines[first:]:
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
    causes = causes or _find_own_error(result)
    return _make_record(result, cell, status, f"{message}: {causes[-1]}" if causes else message)


def _find_own_error(result: JobResult) -> list[str]:
    """Return a sentence about an exception that this package raised itself, if the log has one."""
    lines = _read_last_lines(result.job, result.last_announcement)
    files = [match["file"] for match in map(_FRAME.search, lines) if match]
    is_own = bool(files) and files[-1].startswith(_OWN_FOLDER + os.sep)
    if not is_own or "Traceback (most recent call last):" not in lines:
        return []
    last = redact(lines[-1], limit=_LINE_LENGTH)
    return [f"an error of this tool, and not of the model: {last}; report it with the log"]


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


#: A job with the records in its folder.
_EndedJob = tuple[Job, FolderRecords]


class SplitJobs:
    """The running and ended parts of each model."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._running: dict[str, set[str]] = {}
        self._ended: dict[str, list[_EndedJob]] = {}
        self.add(tasks)

    def add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self._running.setdefault(task.job.spec.id, set()).add(task.job.folder)

    def add_ended(self, job: Job, records: FolderRecords) -> list[_EndedJob]:
        """Add an ended part.

        Returns:
            All parts of the model, or an empty list if another part is running.
        """
        model_id = job.spec.id
        self._ended.setdefault(model_id, []).append((job, records))
        self._running[model_id].discard(job.folder)
        if self._running[model_id]:
            # If the run is killed now, all records in the folder count.
            announcement = Announcement(stage=Stage.PARITY, cells=(), log="")
            write_json(JobFolder(Path(job.folder)).announcement, announcement)
            return []
        return self._ended.pop(model_id)

    def list_incomplete(self) -> list[list[_EndedJob]]:
        return list(self._ended.values())


def join_folders(parts: Sequence[FolderRecords]) -> tuple[FolderRecords, list[Record]]:
    """Join all parts in one of their folders.

    Returns:
        The joined part, and the records that were dropped because PyTorch's outputs differed.
    """
    for part in parts:
        if repair_folder(part.folder):  # the model also ran in the worker of another part
            part.discard()
        remove_unrecorded_files(part)
    main, *others = sorted(parts, key=_rank, reverse=True) if len(parts) > 1 else parts
    dropped = []
    for other in others:
        dropped += carry_over(other, main, lambda _: True, same_run=True)
    for other in others:
        # onnx rejects external data with a second name. If a model made its folder unreadable, the
        # folder is removed with the other private folders of the run.
        shutil.rmtree(other.folder.path, ignore_errors=True)
    return main, dropped


def _rank(part: FolderRecords) -> tuple[bool, bool, bool]:
    """Return a sort key: results first, then a reference, then float64 outputs for all samples."""
    path = part.folder.reference
    reference = Reference.find(path, PROJECT_LIMIT)
    is_exact = reference is not None and reference.is_measured_everywhere
    return bool(part.by_cell), os.path.lexists(path), is_exact


#: How often a job runs again because its folder was removed. Another model can do that.
_MAX_LOST_FOLDERS = 3


class BuildObserver:
    """Receives the progress of a build. A subclass shows it."""

    def on_decisions(self, decisions: Decisions) -> None:
        """Show the decisions. This is the first call, and it is made once."""

    def on_announcement(self, announcement: Announcement) -> None:
        """Show the current stage of cells."""

    def on_cell_done(self, record: Record) -> None:
        """Show the result of a cell, with expectations applied."""

    def on_model_done(self, model: str) -> None:
        """Show that all results of a model are in place."""

    def on_note(self, message: str) -> None:
        """Show a message for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One run of a plan: what it reads, writes and reports to."""

    manifest: Manifest
    plan: Plan
    engine: Engine
    stored: StoredRecords
    validator: RecordValidator
    observer: BuildObserver
    options: BuildOptions
    store: ResultCache | None
    """None if no cell needs the store."""

    def find_valid(self, cell: CellId) -> Record | None:
        """Return the current valid record of a cell, or None."""
        return find_valid_record(self.stored, self.validator, (), cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The decided cells of a model, which do not replace its earlier results yet."""

    model: str
    records: FolderRecords
    """The results of this run, and the earlier ones that are still valid."""
    built: tuple[Record, ...]
    """The records of the cells that ran."""


class Supervisor:
    """Decides the cells of ended jobs.

    `make_last`: Return the tasks that need the results of all others.
    """

    def __init__(
        self, build: Build, tasks: Sequence[Task], make_last: Callable[[], Sequence[Task]] = list
    ) -> None:
        self._build = build
        self._make_last: Callable[[], Sequence[Task]] | None = make_last
        #: The tasks that did not end.
        self._open = len(tasks)
        self._planned = {planned.cell for planned in build.plan.cells}
        self._selected = {planned.cell: planned for planned in build.plan.to_run}
        self._queue = deque(tasks)
        self._split_jobs = SplitJobs(tasks)
        self._reported: set[CellId] = set()
        #: Seconds of all workers by folder: retries share the time limit of the model.
        self._used_seconds: Counter[str] = Counter()
        self._lost_folders: Counter[str] = Counter()
        #: By model: the cells that run again alone, with what ended them beside other jobs.
        self._postponed: dict[str, dict[CellId, str]] = {}
        self._first_problems: dict[CellId, str] = {}

    def run(self) -> Generator[Proof, None, None]:
        """Run the tasks and those that follow them. Yield each model when all its cells ended.

        Raises:
            ExporterError: ENVIRONMENT, if a worker found that its environment is unusable.
            KeyboardInterrupt: after the finished cells of all models were yielded.
        """
        self._add_last()
        with closing(self._build.engine.run(self._queue, self)) as results:
            try:
                for result in results:
                    self._open -= 1
                    yield from self._accept(result)
                    self._add_last()
            except KeyboardInterrupt as interrupt:
                for result in end_jobs(results, interrupt):
                    yield from self._accept(result)
                for ended in self._split_jobs.list_incomplete():
                    yield from self._finish(ended, interrupted=True)
                raise

    def _add_last(self) -> None:
        """Add the last tasks, once, if no other task is open."""
        if not self._open and self._make_last:
            tasks, self._make_last = self._make_last(), None
            self._split_jobs.add(tasks)
            self._queue.extend(tasks)
            self._open += len(tasks)

    def on_announcement(self, announcement: Announcement) -> None:
        self._build.observer.on_announcement(announcement)

    def on_record(self, record: Record) -> None:
        """Report a cell that finished while its job runs, unless it may run again alone."""
        if record.status is not Status.KILLED:
            self._report(record)

    def _report(self, record: Record) -> None:
        """Report a finished cell once."""
        if record.cell not in self._reported:
            self._reported.add(record.cell)
            self._build.observer.on_cell_done(self._build.validator.apply_expectations(record))

    def _accept(self, result: JobResult) -> Iterator[Proof]:
        """Decide the cells of a job. The remaining cells run next.

        Raises:
            ExporterError: ENVIRONMENT, if the worker found that its environment is unusable.
        """
        is_unusable = result.exit_kind is ExitKind.EXITED and result.code == ExitCode.ENVIRONMENT
        # A model can exit with any code. The worker checks its environment before it announces.
        if is_unusable and result.last_announcement is None:
            lines = read_log_tail(result.job, None).splitlines()
            message = lines[-1] if lines else "the worker cannot start; run `exporter doctor`"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        job = result.job
        records = FolderRecords(JobFolder(Path(job.folder)))
        is_lost = not os.path.lexists(records.folder.job)
        repair_folder(records.folder)
        if is_lost and not all(cell in records.by_cell for cell in job.cells()):
            result = self._handle_lost_folder(result, records)
        verdict = evaluate_job(result, records.by_cell)
        for cell in job.cells():
            record = verdict.records.get(cell)
            if record and may_succeed_alone(result, record):
                records.remove(cell)
                self._postponed.setdefault(cell.model, {})[cell] = record.message
            elif record:
                if problem := self._first_problems.pop(cell, ""):
                    note = f"ran again alone: beside other workers, {problem}"
                    record = record.model_copy(update={"notes": (*record.notes, note)})
                records.write(record)
                self._report(record)
            else:
                records.remove(cell)
        if result.exit_kind is not ExitKind.SERVER_END:
            self._used_seconds[job.folder] += math.ceil(result.seconds)
        if verdict.retry:
            self._add_task(restrict_job(job, verdict.retry))
        elif ended := self._split_jobs.add_ended(job, records):
            interrupted = result.exit_kind is ExitKind.INTERRUPTED
            yield from self._finish(ended, interrupted=interrupted)

    def _handle_lost_folder(self, result: JobResult, records: FolderRecords) -> JobResult:
        """Return the end of a job whose folder was removed, by its own model or by another one."""
        for cell in result.job.cells():
            records.remove(cell)  # its file may be lost
        folder = result.job.folder
        self._lost_folders[folder] += 1
        may_retry = result.exit_kind in (ExitKind.EXITED, ExitKind.SIGNAL)
        if may_retry and self._lost_folders[folder] <= _MAX_LOST_FOLDERS:
            return replace(result, exit_kind=ExitKind.SERVER_END)
        return result

    def _add_task(self, job: Job) -> None:
        """Run a job next, within the remaining time of the model."""
        self._open += 1
        remaining = job.spec.timeout - self._used_seconds[job.folder]
        self._queue.appendleft(Task(job=job, seconds=max(remaining, 1.0)))

    def _add_lone_task(self, job: Job, problems: Mapping[CellId, str]) -> None:
        """Run a job after all others, alone and with the whole time limit.

        `problems`: What ended its cells when they ran beside other jobs.
        """
        self._first_problems.update(problems)
        del self._used_seconds[job.folder]
        self._open += 1
        self._queue.append(Task(job=job, seconds=job.spec.timeout, is_alone=True))
        count = pluralize(len(problems), "cell")
        first = next(iter(problems.values()))
        message = f"{job.spec.id}: {count} will run again alone: beside other workers, {first}"
        self._build.observer.on_note(message)

    def _finish(self, ended: Sequence[_EndedJob], *, interrupted: bool) -> Iterator[Proof]:
        """Yield the results of a model, unless cells were postponed or cannot be carried over."""
        job = ended[0][0]
        model_id = job.spec.id
        fresh, dropped = join_folders([records for _, records in ended])
        postponed = {} if interrupted else self._postponed.pop(model_id, {})
        if not fresh.by_cell and not postponed:
            return  # interrupted before the first cell
        old = self._build.stored.get_model(model_id)
        mark_flaky(old, fresh)
        built = tuple(fresh.by_cell.values())

        def is_kept(record: Record) -> bool:
            is_wanted = record.cell in self._planned and record.cell not in postponed
            return is_wanted and self._build.validator.is_valid(record)

        dropped += carry_over(old, fresh, is_kept)
        cells = dict.fromkeys([*(record.cell for record in dropped), *postponed])
        again = [self._selected[cell] for cell in cells if cell in self._selected]
        if again and not interrupted:
            folder = str(fresh.folder.path)
            if len(ended) > 1:  # the time of a part is not the time of the complete model
                del self._used_seconds[folder]
            opsets = make_opset_jobs(self._build.manifest, again, {}, self._build.find_valid)
            again_job = job.model_copy(update={"folder": folder, "opsets": opsets, "part": 0})
            if postponed:
                self._add_lone_task(again_job, postponed)
            else:
                self._add_task(again_job)
            return
        if count := sum(record.cell in self._planned for record in dropped):
            message = f"{model_id}: {count} earlier results are stale and were dropped"
            self._build.observer.on_note(message)
        yield Proof(model=model_id, records=fresh, built=built)
