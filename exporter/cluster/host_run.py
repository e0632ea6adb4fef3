"""Run one job on a host, in a copy of the project.

A Dask worker calls these functions: `run_job` is the task, and the client calls the others beside
it. The job itself runs in a worker process of the local engine, as on the client's machine, so that
its crash does not end the Dask worker.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.cache.fingerprint import hash_device
from exporter.cache.states import (
    CLIENT_ROOT,
    NO_FOLDERS,
    have_tools_changed,
    read_search_path,
    read_source_state,
    read_tool_parts,
)
from exporter.cluster.archives import (
    PART_SIZE,
    Archive,
    ClientFacts,
    HostEvent,
    HostReply,
    HostRequest,
    list_results,
    unpack,
)
from exporter.core.errors import ExporterError
from exporter.core.files import hash_file, remove_folder
from exporter.jobs import Announcement, Job, JobFolder
from exporter.manifest import Device, RuntimeEnvironment
from exporter.pipeline.device_environments import InstallationFailure, install_environment
from exporter.pipeline.engine import JobResult, LocalEngine, Task
from exporter.processes.fork_server_client import (
    ProcessStarter,
    WorkerCommand,
    WorkerProcess,
    make_worker_starter,
)
from exporter.processes.worker_variables import list_shared_variables, make_worker_environment
from exporter.records.record import Record
from exporter.virtual_environments import find_environment

PYTHON_PATH = "PYTHONPATH"
#: A variable has a value of its own on each host; the workers receive that of the client.
_VARIABLE_PART = "tool.torch_private"


def split_python_path(root: Path, value: str) -> tuple[str, ...]:
    """Return the folders of `PYTHONPATH`; those of the project are relative to its root."""
    real_root = root.resolve()
    folders = []
    for folder in filter(None, value.split(os.pathsep)):
        path = Path(os.path.realpath(folder))
        is_inside = path.is_relative_to(real_root)
        folders.append(path.relative_to(real_root).as_posix() if is_inside else str(path))
    return tuple(folders)


def make_host_variables(
    client_facts: ClientFacts, root: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    shared = list_shared_variables(environment, client_facts.patterns)
    values = {name: value for name, value in environment.items() if name not in shared}
    client_root = Path(client_facts.root)
    # An installation as a link leads to the client's project; the copy of it is searched first.
    names = (*client_facts.python_path, *_list_own_folders(client_facts.search_path))
    folders = list(dict.fromkeys(str(root / folder) for folder in names))
    # A host can have other folders of packages. Those of the client's project are other files.
    folders += [
        folder
        for folder in filter(None, environment.get(PYTHON_PATH, "").split(os.pathsep))
        if folder not in folders and not Path(folder).resolve().is_relative_to(client_root)
    ]
    if folders:
        values[PYTHON_PATH] = os.pathsep.join(folders)
    else:
        values.pop(PYTHON_PATH, None)
    variables = values | dict(client_facts.variables)
    return {
        **make_worker_environment(variables, client_facts.patterns),
        CLIENT_ROOT: client_facts.root,
    }


def _list_own_folders(search_path: str) -> list[str]:
    """Return the folders of a project in its search path, as it has them relative to its root."""
    folders = search_path.split(os.pathsep) if search_path != NO_FOLDERS else []
    return [each for each in folders if not each.startswith(("/", ".."))]


def find_tool_differences(client_facts: ClientFacts) -> tuple[str, ...]:
    """Return how the packages of this host differ from those of the client."""
    if have_tools_changed():
        return ("its packages changed since its Dask worker started; restart the Dask worker",)
    ours = read_tool_parts()
    return tuple(
        f"{part.removeprefix('tool.')}: {ours.get(part) or 'missing'} instead of "
        f"{state or 'missing'}"
        for part, state in client_facts.tools.items()
        if part != _VARIABLE_PART and ours.get(part, "") != state
    )


def find_differences(
    client_facts: ClientFacts, root: Path, variables: Mapping[str, str]
) -> Iterator[str]:
    """Yield how the files around the copy of the project differ from those of the client."""
    state = read_search_path(root, variables.get(PYTHON_PATH, ""), client_facts.root)
    if state != client_facts.search_path:
        yield f"search path of Python: {state} instead of {client_facts.search_path}"
    for name, target_state in client_facts.targets.items():
        link = root / name
        if read_source_state(link.resolve()) != target_state:
            target = f"{name} -> {link.readlink()}"
            yield f"{target}: the file is missing or differs; copy it to the host"


def prepare_devices(job: Job, folder: Path) -> tuple[Job, tuple[str, ...]]:
    """Return the job with the interpreters of this host, and the differences of its devices.

    The folder is for environments that this host lacks.
    """
    differences: dict[str, None] = {}
    devices: dict[str, Device] = {}
    for device in (each for opset in job.opsets for each in opset.devices):
        if device.name in devices:
            continue
        devices[device.name] = device
        expected = job.device_parts.get(device.name, {}).get("device", "")
        if device.provider_library and hash_device(device) != expected:
            differences[f"{device.provider_library}: the file is missing or differs"] = None
        environment = device.environment
        if environment is not None and environment.interpreter:
            located = _locate(environment, folder)
            devices[device.name] = device.model_copy(update={"environment": located})
            if located.problem:
                differences[f"environment {environment.name}: {located.problem}"] = None
    opsets = tuple(
        opset.model_copy(update={"devices": tuple(devices[d.name] for d in opset.devices)})
        for opset in job.opsets
    )
    return job.model_copy(update={"opsets": opsets}), tuple(differences)


def _locate(runtime_environment: RuntimeEnvironment, folder: Path) -> RuntimeEnvironment:
    """Return the environment on this host; its packages must be those of the client."""
    client_folder = Path(runtime_environment.interpreter).parents[2]
    installed = find_environment(runtime_environment.definition, client_folder)
    if installed is None or dict(installed.packages) != runtime_environment.packages:
        try:
            installed = install_environment(runtime_environment.definition, folder)
        except InstallationFailure as error:
            return runtime_environment.model_copy(update={"problem": str(error)})
    expected, actual = runtime_environment.packages, installed.packages
    problem = ", ".join(
        f"{name}: {actual.get(name, 'missing')} instead of {expected.get(name, 'missing')}"
        for name in sorted({*expected, *actual})
        if expected.get(name) != actual.get(name)
    )
    update = {"interpreter": str(installed.python), "problem": problem}
    return runtime_environment.model_copy(update=update)


#: Seconds between two looks at a worker, or for an archive that the client sends.
_INTERVAL = 0.05
#: Seconds without a new part, after which the job runs elsewhere.
_SILENCE = 60.0
#: Seconds after a run, in which the next one can use the fork server.
_IDLE = 120.0
_ARCHIVE, _PART, _COPY = "project.tar", "project.part", "copy"
_LOCK, _COPY_LOCK = threading.Lock(), threading.Lock()
_ENDED_RUNS: set[str] = set()
#: By run: the folder with the archive or the copy of its project, and the number of its jobs.
_FOLDERS: dict[str, Path] = {}
_ACTIVE: Counter[str] = Counter()
_STARTERS: dict[tuple[object, ...], _SharedStarter] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A Dask worker for one job."""

    address: str
    scratch: Path
    """The folder of the Dask worker. Dask removes it."""
    environments: Path
    """The folder for environments of devices, which all Dask workers of the machine share."""
    report: Callable[[Announcement | None], None]
    """Receives None for the start of the job, and its announcements."""
    is_cancelled: Callable[[], bool]

    def refuse(self, *reasons: str) -> bytes:
        """Return the reply to a request that this host cannot run."""
        return HostReply(host=self.address, refusal=reasons).pack()


def run_job(text: str) -> bytes:
    """Run a job, or return the reason why it cannot run. This is the Dask task."""
    from distributed import get_worker

    worker: Any = get_worker()
    try:
        return _run_on(worker, HostRequest.model_validate_json(text))
    except Exception as error:  # noqa: BLE001 - a client waits forever for one without a pickle
        reason = f"{type(error).__name__}: {error}"
        return HostReply(host=worker.address, refusal=(reason,)).pack()


def _run_on(worker: Any, request: HostRequest) -> bytes:
    """Run a job on a Dask worker, and remove the copy of the project after the last one."""
    run, tasks = request.client_facts.run, worker.state.tasks

    def report(announcement: Announcement | None) -> None:
        event = HostEvent(key=request.key, host=worker.address, announcement=announcement)
        worker.log_event(run, event.to_json(indent=None))

    def is_cancelled() -> bool:
        task = tasks.get(request.key)
        is_unwanted = task is None or task.state == "cancelled"
        return is_unwanted or run in _ENDED_RUNS or worker.status.name != "running"

    host = Host(
        address=worker.address,
        scratch=Path(worker.local_directory),
        environments=Path(worker.local_directory).parent / "exporter" / "environments",
        report=report,
        is_cancelled=is_cancelled,
    )
    with _LOCK:
        _ACTIVE[run] += 1
    try:
        return run_request(request, host)
    finally:
        with _LOCK:
            _ACTIVE[run] -= 1
        _remove_copy(run)


def run_request(request: HostRequest, host: Host) -> bytes:
    client_facts, job = request.client_facts, request.job
    if differences := find_tool_differences(client_facts):
        return host.refuse(*differences)
    root = _copy_project(client_facts, host)
    if root is None:
        return host.refuse()
    variables = make_host_variables(client_facts, root, os.environ)
    job, problems = prepare_devices(job, host.environments)
    if differences := (*find_differences(client_facts, root, variables), *problems):
        return host.refuse(*differences)
    is_outside = Path(client_facts.build).is_absolute()
    build_path = root.parent / "build" if is_outside else root / client_facts.build
    parent = build_path / Path(job.folder).parent.name
    parent.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=f"{job.spec.id}-", dir=parent)
    job = job.model_copy(update={"root": str(root), "build": str(build_path), "folder": folder})
    host.report(None)
    events = _HostEvents(host.report)
    shared = _get_starter(variables)
    engine = LocalEngine(1, _JobStarter(shared, host.is_cancelled))
    # The engine yields the end of the job, also if `is_cancelled` interrupts it.
    result = next(engine.run(deque([Task(job=job, seconds=request.seconds)]), events))
    return _make_reply(host, JobFolder(Path(job.folder)), result)


def add_part(
    run: str, sha256: str, offset: int, content: bytes, size: int, dask_worker: Any
) -> bytes:
    """Receive a part of the archive of a project. Dask adds the last argument.

    Returns:
        The reason if the archive cannot be stored, else nothing.
    """
    folder = _FOLDERS.setdefault(run, Path(dask_worker.local_directory) / run)
    part = folder / _PART
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(content)
        if offset + len(content) == size:
            if hash_file(part) != sha256:
                return b"the archive has another digest than its parts"
            part.replace(folder / _ARCHIVE)
    except OSError as error:
        return f"{type(error).__name__}: {error}".encode()
    return b""


def read_part(name: str, offset: int) -> bytes:
    with Path(name).open("rb") as file:
        file.seek(offset)
        return file.read(PART_SIZE)


def discard(name: str) -> None:
    """Remove the archive of a job, which the client received."""
    Path(name).unlink(missing_ok=True)


def end_run(run: str) -> None:
    """End all jobs of a run. Those that wait do not start."""
    _ENDED_RUNS.add(run)
    _remove_copy(run)
    timer = threading.Timer(_IDLE, _close_starters)
    timer.daemon = True
    timer.start()


def make_host_starter(variables: Mapping[str, str]) -> ProcessStarter:
    return make_worker_starter(variables)


class _HostEvents:
    """Forwards the announcements of a job."""

    def __init__(self, announce: Callable[[Announcement | None], None]) -> None:
        self.on_announcement = announce

    def on_record(self, record: Record) -> None:
        """Do nothing: all records travel with the reply."""


def _close_starters() -> None:
    """End the fork servers and free their memory if there is no run. The next job starts others."""
    with _LOCK:
        if not _FOLDERS:
            for shared in _STARTERS.values():
                with shared.lock:
                    shared.starter.close()


def _remove_copy(run: str) -> None:
    """Remove the copy of an ended run without jobs."""
    with _LOCK:
        if run not in _ENDED_RUNS or _ACTIVE[run]:
            return
        folder = _FOLDERS.pop(run, None)
    if folder:
        with suppress(ExporterError):
            remove_folder(folder)


def _copy_project(client_facts: ClientFacts, host: Host) -> Path | None:
    """Return the root of this run's copy of the project, or None if the archive does not arrive."""
    folder = host.scratch / client_facts.run
    archive = folder / _ARCHIVE
    part = folder / _PART
    copy = folder / _COPY
    last_part, last_size = time.monotonic(), -1
    while not (archive.is_file() or copy.is_dir()):
        size = part.stat().st_size if part.is_file() else -1
        if size != last_size:
            last_part, last_size = time.monotonic(), size
        if host.is_cancelled() or time.monotonic() - last_part > _SILENCE:
            return None
        time.sleep(_INTERVAL)
    with _COPY_LOCK:
        if not copy.is_dir():
            unpacked = Path(tempfile.mkdtemp(dir=folder))
            with archive.open("rb") as file:
                unpack(file, unpacked / client_facts.name, has_links=True)
            unpacked.rename(copy)
            archive.unlink()
    return copy / client_facts.name


def _get_starter(variables: Mapping[str, str]) -> _SharedStarter:
    """Return the starter with these variables, which all jobs share."""
    key = tuple(sorted(variables.items()))
    with _LOCK:
        if key not in _STARTERS:
            _STARTERS[key] = _SharedStarter(make_host_starter(variables))
        return _STARTERS[key]


def _make_reply(host: Host, job_folder: JobFolder, result: JobResult) -> bytes:
    """Pack the files of a job, remove its folder and return the reply."""
    descriptor, name = tempfile.mkstemp(prefix="results-", dir=host.scratch)
    with os.fdopen(descriptor, "w+b") as file:
        archive = Archive.pack(file, job_folder.path, list_results(job_folder))
        first_part = next((content for _, content in archive.read_parts()), b"")
    is_complete = len(first_part) == archive.size
    if is_complete:
        discard(name)
    with suppress(OSError, ExporterError):
        remove_folder(job_folder.path)
    return HostReply(
        host=host.address,
        exit_kind=result.exit_kind,
        code=result.code,
        announcement=result.last_announcement,
        seconds=result.seconds,
        name="" if is_complete else name,
        size=archive.size,
        sha256=archive.sha256,
    ).pack(first_part)


@dataclass(frozen=True, slots=True)
class _SharedStarter:
    """A fork server, which imports torch once for all threads of a Dask worker."""

    starter: ProcessStarter
    lock: threading.RLock = field(default_factory=threading.RLock)


class _JobStarter(ProcessStarter):
    """The starter of one job, which locks the calls of the shared one and does not end it."""

    def __init__(self, shared: _SharedStarter, is_cancelled: Callable[[], bool]) -> None:
        super().__init__({})
        self._shared = shared
        self._is_cancelled = is_cancelled

    def start(self, command: WorkerCommand) -> WorkerProcess:
        with self._shared.lock:
            return _LockedWorker(self._shared.starter.start(command), self._shared.lock)

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            KeyboardInterrupt: if the job must end; the engine then ends its worker.
        """
        time.sleep(min(seconds, _INTERVAL))
        if self._is_cancelled():
            raise KeyboardInterrupt


class _LockedWorker:
    def __init__(self, worker: WorkerProcess, lock: threading.RLock) -> None:
        self._worker = worker
        self.pid = worker.pid
        self._lock = lock

    @property
    def is_lost(self) -> bool:
        return self._worker.is_lost

    def poll(self) -> int | None:
        with self._lock:
            return self._worker.poll()

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(_INTERVAL)
        return self.poll() is not None

    def signal_group(self, number: signal.Signals) -> None:
        with self._lock:
            self._worker.signal_group(number)
