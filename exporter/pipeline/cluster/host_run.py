"""Run one job on a host, and exchange files with the client.

A Dask worker calls these functions: `run_job` is the task, and the others are calls of the client
between tasks. The job itself runs in a worker process of the local engine, as on the client's
machine, so that its crash does not end the Dask worker.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from exporter.core.errors import ExporterError
from exporter.core.file_hash import hash_file
from exporter.core.folder_access import make_accessible, remove_folder
from exporter.core.regular_files import CELL_LIMIT, PROJECT_LIMIT, read_regular_file
from exporter.jobs.job import Announcement, Job
from exporter.jobs.job_folder import JobFolder
from exporter.pipeline.cluster.host_environment import (
    find_link_differences,
    find_path_difference,
    find_tool_differences,
    make_host_variables,
    prepare_devices,
)
from exporter.pipeline.cluster.host_folder import HostFolder, WrongDigest, hash_content
from exporter.pipeline.cluster.protocol import (
    PART_SIZE,
    FilePart,
    HostReply,
    HostRequest,
    RunContext,
    SentFile,
    find_host_folder,
    name_host,
)
from exporter.pipeline.cluster.shared_starter import JobStarter, SharedStarter
from exporter.pipeline.engine import ExitKind, JobResult, LocalEngine, Task
from exporter.processes.bubblewrap import find_obstacle
from exporter.processes.spawner import ProcessStarter
from exporter.processes.worker_starter import make_worker_starter
from exporter.records.record import Record

#: Bytes of a file that is sent with the reply.
_INLINE_SIZE = 1 << 20
#: Bytes of all such files.
_INLINE_TOTAL = 64 << 20
_INTERRUPTED: set[str] = set()
_SEEN_RUNS: set[str] = set()
_STARTERS: dict[tuple[object, ...], SharedStarter] = {}
_LOCK = threading.Lock()


def run_job(request: HostRequest) -> HostReply:
    """Run a job, or return the reason why it cannot run. This is the Dask task."""
    from distributed import get_worker
    from distributed.comm.addressing import get_address_host

    worker = get_worker()
    host = name_host(get_address_host(worker.address), worker.local_directory)
    context = request.context
    if context.run in _INTERRUPTED:
        return HostReply(host=host, exit_kind=ExitKind.INTERRUPTED)
    topic, state = context.run, worker.state

    def report(kind: str, value: str) -> None:
        event = {"key": request.key, "kind": kind, "value": value, "host": host}
        worker.log_event(topic, event)

    def is_cancelled() -> bool:
        task = state.tasks.get(request.key)
        is_unwanted = task is None or task.state == "cancelled"
        return is_unwanted or context.run in _INTERRUPTED or worker.status.name != "running"

    try:
        return run_request(
            request,
            HostFolder(find_host_folder(worker.local_directory)),
            host,
            report,
            is_cancelled,
        )
    except (ExporterError, OSError, WrongDigest) as error:
        return HostReply(host=host, refusal=(f"{type(error).__name__}: {error}",))


def run_request(
    request: HostRequest,
    folder: HostFolder,
    host: str,
    report: Callable[[str, str], None],
    is_cancelled: Callable[[], bool],
) -> HostReply:
    """Run a job in a copy of the project.

    Args:
        request: The job.
        folder: The working folder of the host.
        host: The name of the host.
        report: Receives the start and the announcements of the job.
        is_cancelled: Returns True if the job must end.

    Raises:
        OSError: if the host cannot write or read a file.
        WrongDigest: if a file of the host changed.
    """
    context = request.context
    if differences := find_tool_differences(context):
        return HostReply(host=host, refusal=differences)
    job, root = Job.model_validate_json(request.job), Path(context.root)
    if job.sandbox == "bubblewrap" and (obstacle := find_obstacle()):
        return HostReply(host=host, refusal=(f"sandbox: {obstacle}",))
    if context.tree:
        if missing := _list_missing_files(folder, context.tree):
            return HostReply(host=host, missing=missing)
        with _LOCK:
            root = folder.copy_project(context.tree, is_first=context.run not in _SEEN_RUNS)
            if context.run not in _SEEN_RUNS:
                folder.remove_unused()
                _SEEN_RUNS.add(context.run)
    variables = make_host_variables(context, root, os.environ)
    if context.tree:
        differences = _find_differences(context, folder, root, variables)
        job, problems = prepare_devices(job, folder.path / "environments")
        if differences or problems:
            return HostReply(host=host, refusal=(*differences, *problems))
        job = _move_job(job, context, root)
    else:
        parent = Path(job.folder).parent
        job = job.model_copy(update={"folder": _make_folder(job, parent)})
    report("started", "")
    events = _HostEvents(report)
    shared = _get_starter(variables, job.sandbox)
    shared.begin()
    try:
        engine = LocalEngine(1, JobStarter(shared, is_cancelled))
        engine.run([Task(job=job, seconds=request.seconds)], events)
    except KeyboardInterrupt:  # `is_cancelled`: the engine has reported the end
        pass
    finally:
        shared.end()
    return _make_reply(host, job, events.result, is_local=not context.tree)


def _find_differences(
    context: RunContext, folder: HostFolder, root: Path, variables: Mapping[str, str]
) -> tuple[str, ...]:
    path = find_path_difference(context, root, variables)
    links = find_link_differences(folder.read_tree(context.tree), root)
    return (*((path,) if path else ()), *links)


def list_missing(digests: Sequence[str], dask_worker: Any) -> tuple[str, ...]:
    """Return the digests that this host lacks. Dask adds the last argument."""
    return HostFolder(find_host_folder(dask_worker.local_directory)).list_missing(digests)


def add_part(part: FilePart, dask_worker: Any) -> str:
    """Receive a part of a file; return the reason if it cannot be stored, else ""."""
    try:
        HostFolder(find_host_folder(dask_worker.local_directory)).add_part(part)
    except (OSError, WrongDigest) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def read_part(folder: str, name: str, offset: int) -> bytes | None:
    """Return a part of a file of a job, or None if it cannot be read."""
    try:
        with (Path(folder) / name).open("rb") as file:
            file.seek(offset)
            return file.read(PART_SIZE)
    except OSError:
        return None


def discard_job(folder: str) -> None:
    """Remove the folder of a job, whose files the client received."""
    with suppress(OSError, ExporterError):
        remove_folder(Path(folder))


def interrupt_run(run: str) -> None:
    """End all jobs of a run; those that wait do not start."""
    _INTERRUPTED.add(run)


def make_host_starter(variables: Mapping[str, str], sandbox: str) -> ProcessStarter:
    """Return the starter of worker processes with these variables."""
    return make_worker_starter(variables, sandbox)


class _HostEvents:
    """Forwards the announcements of a job, and keeps its end."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self.result: JobResult | None = None

    def on_announcement(self, announcement: Announcement) -> None:
        self._report("announced", announcement.to_json(indent=None))

    def on_record(self, record: Record) -> None:
        """Do nothing: all records travel with the reply."""

    def on_job_end(self, result: JobResult) -> None:
        self.result = result


def _list_missing_files(folder: HostFolder, tree: str) -> tuple[str, ...]:
    """Return the digests that the copy of a project needs and the host lacks."""
    if missing := folder.list_missing([tree]):
        return missing
    return _check_tree(folder, tree)


def _check_tree(folder: HostFolder, tree: str) -> tuple[str, ...]:
    if tree in _complete_trees():
        return ()
    missing = folder.list_missing([file.sha256 for file in folder.read_tree(tree).files])
    if not missing:
        _complete_trees().add(tree)
    return missing


@cache
def _complete_trees() -> set[str]:
    """Return the trees whose files this process has seen complete."""
    return set()


def _move_job(job: Job, context: RunContext, root: Path) -> Job:
    """Return the job with the paths of this host."""
    build = root / context.build
    if Path(context.build).is_absolute():
        build = root.parent / "build"
    parent = build / Path(job.folder).parent.name
    parent.mkdir(parents=True, exist_ok=True)
    update = {"root": str(root), "build": str(build), "folder": _make_folder(job, parent)}
    return job.model_copy(update=update)


def _make_folder(job: Job, parent: Path) -> str:
    return tempfile.mkdtemp(prefix=f"{job.spec.id}-", dir=parent)


def _get_starter(variables: Mapping[str, str], sandbox: str) -> SharedStarter:
    """Return the starter with these variables, which all jobs share."""
    key = (sandbox, *sorted(variables.items()))
    with _LOCK:
        if key not in _STARTERS:
            _STARTERS[key] = SharedStarter(make_host_starter(variables, sandbox))
        return _STARTERS[key]


def _make_reply(host: str, job: Job, result: JobResult | None, *, is_local: bool) -> HostReply:
    folder = Path(job.folder)
    if result is None:  # interrupted before the job began
        return HostReply(host=host, exit_kind=ExitKind.INTERRUPTED, folder=str(folder))
    announcement = result.last_announcement
    reply = HostReply(
        host=host,
        exit_kind=result.exit_kind,
        code=result.code,
        announcement=announcement.to_json(indent=None) if announcement else "",
        seconds=result.seconds,
        folder=str(folder),
    )
    if is_local:
        return reply
    files = _list_files(JobFolder(folder))
    if all(file.content is not None for file in files):
        discard_job(str(folder))  # otherwise the client does it when it has all parts
    return replace(reply, files=files)


def _list_files(folder: JobFolder) -> tuple[SentFile, ...]:
    """Return the regular files of a job. Links, pipes and files that are too large are omitted."""
    if folder.path.is_symlink() or not folder.path.is_dir():
        return ()
    make_accessible(folder.path)
    files, total = [], 0
    for parent, _, names in os.walk(folder.path):
        for name in sorted(names):
            path = Path(parent, name)
            with suppress(OSError):
                size = path.lstat().st_size
                if size > _find_limit(folder, path):
                    continue
                is_inline = size <= _INLINE_SIZE and total + size <= _INLINE_TOTAL
                content = read_regular_file(path, _INLINE_SIZE) if is_inline else None
                total += size if is_inline else 0
                files.append(
                    SentFile(
                        name=path.relative_to(folder.path).as_posix(),
                        sha256=hash_file(path) if content is None else hash_content(content),
                        size=size if content is None else len(content),
                        content=content,
                    )
                )
    return tuple(files)


def _find_limit(folder: JobFolder, path: Path) -> int:
    """Return the largest size of a file, as the readers of the client accept it."""
    if path == folder.job:  # the client has its own
        return -1
    if path.parent == folder.records or path == folder.announcement:
        return CELL_LIMIT
    if path in (folder.reference, folder.contract):
        return PROJECT_LIMIT
    return shutil.disk_usage(folder.path).total
