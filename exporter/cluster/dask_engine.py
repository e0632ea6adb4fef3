"""Run jobs on a Dask cluster.

The client submits some jobs more than the cluster can run, so that Dask chooses the host and no
host waits. Each host runs a job by its local engine and sends its files back as an archive.
Everything that waits for a host runs in a thread: a silent host blocks nothing else.
"""

from __future__ import annotations

import hashlib
import queue
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from exporter.cache.states import read_search_path, read_tool_parts
from exporter.cluster import host_run
from exporter.cluster.archives import (
    PART_SIZE,
    Archive,
    ClientFacts,
    HostEvent,
    HostReply,
    HostRequest,
    list_project,
    move_files,
    read_targets,
    unpack,
)
from exporter.cluster.cluster_hosts import (
    ClusterConnection,
    ClusterHosts,
    connect,
    require_dask,
)
from exporter.cluster.host_run import PYTHON_PATH, split_python_path
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import pluralize
from exporter.jobs import Announcement, JobFolder, write_json
from exporter.manifest import Project
from exporter.manifest.resolved.keys import NO_STORE, is_remote
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.engine import ExitKind, JobEvents, JobResult, Task, may_start
from exporter.processes.worker_variables import list_shared_variables

#: Seconds between two looks at the cluster.
_INTERVAL = 0.5
#: Jobs that wait in the cluster, for each one that runs there. An adaptive cluster grows with them.
_QUEUED_SHARE, _MIN_QUEUED = 3, 64
#: Seconds in which interrupted jobs end and send their finished cells.
_GRACE_PERIOD = 10.0
#: Seconds in which the hosts receive the end of the run.
_CLOSE_LIMIT = 2.0
#: Refused or failed submissions of one job.
_MAX_SUBMISSIONS = 20
#: Hosts that ended after a job announced a stage there, after which the job is the reason.
_MAX_LOSSES = 2
#: Invalid replies of a host, which then runs no more jobs.
_MAX_INVALID = 3
#: The release and the modules of this package on a host, as an expression of the standard library:
#: the function of another release may be in a module that the host lacks.
_RELEASE = """(lambda package: b"" if package is None else (
    (lambda folder, sha256, metadata: (metadata.version("onnx-exporter-matrix") + " " + sha256(
        b"".join(path.relative_to(folder).as_posix().encode() + path.read_bytes()
                 for path in sorted(folder.rglob("*.py")))).hexdigest()[:12]).encode())(
        __import__("pathlib").Path(package.origin).parent, __import__("hashlib").sha256,
        __import__("importlib.metadata").metadata)
))(__import__("importlib.util").util.find_spec("exporter"))"""
#: Bytes of an event of a host.
_EVENT_LIMIT = 1 << 20


class DaskEngine:
    """Runs jobs on the hosts of a Dask cluster.

    Raises:
        ExporterError: ENVIRONMENT if Dask is missing.
    """

    def __init__(
        self,
        project: Project,
        environment: Mapping[str, str],
        on_note: Callable[[str], None],
        jobs: int,
    ) -> None:
        require_dask(project)
        self.local_workers = jobs
        self._project = project
        self._environment = environment
        self._on_note = on_note
        self._connection: ClusterConnection | None = None

    @property
    def workers(self) -> int:
        """The number of jobs that run in parallel. The first call connects to the cluster."""
        threads: dict[str, int] = self._open().client.nthreads()
        return max(1, sum(threads.values()))

    def run(self, tasks: deque[Task], events: JobEvents) -> Generator[JobResult, None, None]:
        """Yield each job as it ends; see `Engine.run`.

        Raises:
            ExporterError: ENVIRONMENT, if no host can run jobs or the scheduler is lost.
            KeyboardInterrupt: after all running jobs were ended and yielded.
        """
        connection = self._open()
        try:
            build_path = BuildFolder.from_project(self._project).path.resolve()
            with tempfile.TemporaryFile(dir=build_path) as file:
                client_facts, archive = _pack_project(
                    self._project, build_path, self._environment, file
                )
                run = _ClusterRun(connection, client_facts, archive, events, self._on_note)
                yield from run.run(tasks)
        finally:
            self._connection = None
            connection.close()

    def _open(self) -> ClusterConnection:
        if self._connection is None:
            workers = self.local_workers
            scratch = BuildFolder.from_project(self._project).path / ".dask"
            root = Path(self._project.root)
            self._connection = connect(self._project, root, scratch, workers)
        return self._connection


def _pack_project(
    project: Project, build_path: Path, environment: Mapping[str, str], file: BinaryIO
) -> tuple[ClientFacts, Archive]:
    root = Path(project.root).resolve()
    skipped = [build_path, root / project.build]  # output, which no model reads
    if project.store not in ("", NO_STORE) and not is_remote(project.store):
        skipped.append((root / Path(project.store).expanduser()).resolve())
    paths = list(list_project(root, skipped))
    archive = Archive.pack(file, root, paths)
    python_path = environment.get(PYTHON_PATH, "")
    client_facts = ClientFacts(
        run=f"exporter-{uuid.uuid4().hex[:12]}",
        root=str(root),
        name=root.name or "project",
        build=build_path.relative_to(root).as_posix()
        if build_path.is_relative_to(root)
        else str(build_path),
        targets=read_targets(root, paths),
        tools=read_tool_parts(),
        search_path=read_search_path(root, python_path),
        variables=list_shared_variables(environment, project.environment),
        patterns=project.environment,
        python_path=split_python_path(root, python_path),
    )
    return client_facts, archive


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One job from its submission to its end.

    A host can end for many reasons. A job that was running there runs again elsewhere, and fails as
    `killed` only if a second host ended during it. An end before the first announcement is not the
    fault of the job: no code of the model ran.
    """

    number: int
    task: Task
    priority: int = 0
    """A larger number runs first: other jobs wait for the rest of a model."""
    future: Any = None
    """The future of Dask."""
    submissions: int = 0
    host: str = ""
    """The host that runs the job now, or ""."""
    lost_hosts: list[str] = field(default_factory=list)
    """The hosts that ended after the job announced a stage there."""
    avoided: set[str] = field(default_factory=set)
    allowed: list[str] = field(default_factory=list)
    """The addresses that may run it now."""
    started: float = 0.0
    announcement: Announcement | None = None

    @property
    def is_culprit(self) -> bool:
        """Whether the ends of hosts are the fault of the job."""
        return len(self.lost_hosts) >= _MAX_LOSSES

    def lose_host(self) -> str:
        """Count the end of the host that ran the job; return its address, or "" if none ran it."""
        host, self.host = self.host, ""
        if host and self.announcement is not None:
            self.lost_hosts.append(host)
        if host:
            self.avoided |= {host}
        return host

    def make_result(self, exit_kind: ExitKind) -> JobResult:
        """Return the end of a job that sent no reply."""
        return JobResult(
            job=self.task.job,
            exit_kind=exit_kind,
            code=signal.SIGKILL if exit_kind is ExitKind.SIGNAL else 0,
            last_announcement=self.announcement,
            seconds=time.monotonic() - self.started if self.started else 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Received:
    """A reply of a host with the files of the job, or a problem."""

    key: str = ""
    """"" for a problem of the host and not of a job."""
    host: str = ""
    problem: str = ""
    is_invalid: bool = False
    """Whether a reply arrived that this version of the program cannot read."""
    reply: HostReply | None = None
    folder: Path | None = None


class _ClusterRun:
    """One run on a cluster."""

    def __init__(
        self,
        connection: ClusterConnection,
        client_facts: ClientFacts,
        archive: Archive,
        events: JobEvents,
        on_note: Callable[[str], None],
    ) -> None:
        self._client = connection.client
        self._label = connection.label
        self._client_facts = client_facts
        self._archive = archive
        self._events = events
        self._on_note = on_note
        self._hosts = ClusterHosts(connection, on_note)
        #: The hosts that have the archive of the project, or receive it.
        self._supplied: set[str] = set()
        #: The hosts that have this release; only these get jobs.
        self._known: set[str] = set()
        self._waiting: deque[_Attempt] = deque()
        self._running: dict[str, _Attempt] = {}
        self._ended: deque[JobResult] = deque()
        #: Invalid replies by host.
        self._invalid: Counter[str] = Counter()
        #: Finished tasks by their keys, and values from the threads.
        self._news: queue.Queue[str | HostEvent | _Received] = queue.Queue()
        self._count = 0

    def run(self, tasks: deque[Task]) -> Iterator[JobResult]:
        """Run all tasks, also those that the caller adds."""
        from distributed.client import ClosedClientError
        from distributed.comm import CommClosedError

        self._waiting.extend(self._make_attempt(task) for task in tasks)
        tasks.clear()
        try:
            self._hosts.watch()
            self._client.subscribe_topic(self._client_facts.run, self._receive_event)
            while self._waiting or self._running:
                self._submit_waiting()
                self._handle_news(_INTERVAL)
                # The next jobs run meanwhile: the cluster has more than it can run.
                while self._ended:
                    yield self._ended.popleft()
                    while tasks:
                        task = tasks.popleft()
                        if task.is_alone:
                            self._waiting.append(self._make_attempt(task))
                        else:  # other jobs wait for the rest of a model
                            self._waiting.appendleft(self._make_attempt(task, 1))
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt, ClosedClientError):
                self._interrupt()
            yield from self._ended
            for attempt in self._running.values():
                yield attempt.make_result(ExitKind.INTERRUPTED)
            raise
        except (ClosedClientError, CommClosedError, ExporterError) as error:
            yield from self._ended  # jobs whose end was reported together with the error
            if isinstance(error, ExporterError):
                raise
            self._end_unfinished(f"{self._label}: the scheduler is lost")
        finally:
            self._hosts.close()
            self._end_run().join(_CLOSE_LIMIT)

    def _make_attempt(self, task: Task, priority: int = 0) -> _Attempt:
        self._count += 1
        return _Attempt(number=self._count, task=task, priority=priority)

    def _receive_event(self, event: tuple[float, object]) -> None:
        text = event[1]
        if isinstance(text, str) and len(text) <= _EVENT_LIMIT:
            with suppress(ValueError):  # an event of another version has no effect
                self._news.put(HostEvent.model_validate_json(text))

    # --- submission ---

    def _submit_waiting(self) -> None:
        try:
            self._hosts.update()
        except ExporterError as error:
            if self._hosts.are_refused:
                raise
            self._end_unfinished(str(error))
        for address in set(self._hosts.addresses) - self._supplied:
            self._supplied.add(address)
            _start_thread(self._send_project, address)
        for key, attempt in tuple(self._running.items()):
            if self._hosts.is_stuck(key, attempt.host, attempt.allowed):
                attempt.lose_host()
                self._retry(key, attempt)
        limit = max(_MIN_QUEUED, _QUEUED_SHARE * self._hosts.slots)
        while self._waiting and len(self._running) < limit and not self._hosts.are_refused:
            running = [attempt.task for attempt in self._running.values()]
            if not may_start(self._waiting[0].task, running):
                return
            if not self._submit(self._waiting[0]):
                return
            self._waiting.popleft()

    def _end_unfinished(self, message: str) -> None:
        count = pluralize(len(self._running) + len(self._waiting), "job")
        message += (
            f", and {count} did not finish; the results so far are kept: start the scheduler "
        )
        raise ExporterError(ExitCode.ENVIRONMENT, f"{message}and run the export again") from None

    def _submit(self, attempt: _Attempt) -> bool:
        """Submit a job, unless no host is known that can run it."""
        job = attempt.task.job
        allowed = self._hosts.list_allowed(attempt.avoided) or self._hosts.addresses
        attempt.allowed = [each for each in allowed if each in self._known]
        if not attempt.allowed:
            return False
        attempt.submissions += 1
        if attempt.submissions > _MAX_SUBMISSIONS:
            message = f"{self._label}: no host accepts {job.spec.id}; see the messages above"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        key = f"{job.spec.id}-{self._client_facts.run}-{attempt.number}.{attempt.submissions}"
        # The job is written first: if this process is killed, recovery needs it.
        write_json(JobFolder(Path(job.folder)).job, job)
        request = HostRequest(
            client_facts=self._client_facts, key=key, job=job, seconds=attempt.task.seconds
        )
        attempt.host = ""
        attempt.future = self._client.submit(
            host_run.run_job,
            request.to_json(indent=None),
            key=key,
            pure=False,
            priority=attempt.priority,
            workers=attempt.allowed,
            resources=self._hosts.choose_resources(job),
        )
        self._running[key] = attempt
        attempt.future.add_done_callback(lambda _: self._news.put(key))
        return True

    def _retry(self, key: str, attempt: _Attempt) -> None:
        self._client.cancel([attempt.future], force=True)
        self._running.pop(key)
        attempt.priority = 1
        self._waiting.appendleft(attempt)

    # --- threads ---

    def _call(self, address: str, function: Callable[..., bytes | None], *values: object) -> bytes:
        """Call a function on a host, and return its bytes."""
        result = self._client.run(function, *values, workers=[address])[address]
        if not isinstance(result, bytes | None):
            raise ValueError("the host sent no bytes")
        return result or b""

    def _send_project(self, address: str) -> None:
        run = self._client_facts.run
        sha256 = self._archive.sha256
        size = self._archive.size
        problem = ""
        try:
            release = self._call(address, eval, _RELEASE)
            ours = eval(_RELEASE)  # noqa: S307 - the same expression as on the host
            if release != ours:
                names = [each.decode(errors="replace") or "missing" for each in (release, ours)]
                problem = f"exporter: {names[0]} instead of {names[1]}"
                self._news.put(_Received(host=address, problem=problem))
                return
            self._known.add(address)
            for offset, part in self._archive.read_parts():
                reply = self._call(address, host_run.add_part, run, sha256, offset, part, size)
                if problem := reply.decode(errors="replace"):
                    break
        except Exception:  # noqa: BLE001 - of Dask: the host or the scheduler was lost
            self._supplied.discard(address)  # a host that is still there receives it again
            return
        if problem:
            problem = f"cannot store the project: {problem}"
            self._news.put(_Received(host=address, problem=problem))

    def _receive(self, key: str, attempt: _Attempt, future: Any) -> None:
        """Receive the reply and the files of a job."""
        jobs = Path(attempt.task.job.folder).parent
        folder = Path(tempfile.mkdtemp(prefix=f"{attempt.task.job.spec.id}-", dir=jobs))
        try:
            reply, part = HostReply.unpack(future.result())
            if reply.exit_kind is not None:
                with tempfile.TemporaryFile(dir=jobs) as file:
                    self._receive_archive(reply, part, file, shutil.disk_usage(jobs).free)
                    unpack(file, folder)
        except Exception as error:  # noqa: BLE001 - Dask failed, or the reply is invalid
            shutil.rmtree(folder, ignore_errors=True)
            host = attempt.host
            with suppress(Exception):  # Dask raises it if the host was lost
                host, *_ = self._client.who_has([future])[key]
            is_invalid = isinstance(error, TypeError | ValueError)  # no pickle, or no reply
            self._news.put(
                _Received(key=key, host=host, problem=_describe(error), is_invalid=is_invalid)
            )
        else:
            self._news.put(_Received(key=key, host=reply.host, reply=reply, folder=folder))

    def _receive_archive(self, reply: HostReply, part: bytes, file: BinaryIO, limit: int) -> None:
        """Write the archive of a job to a file, and verify it."""
        digest, size = hashlib.sha256(), 0
        while part:
            size += len(part)
            if len(part) > PART_SIZE or size > min(reply.size, limit):
                raise ValueError(f"the archive has more than {min(reply.size, limit)} bytes")
            digest.update(part)
            file.write(part)
            part = b""
            if size < reply.size:
                part = self._call(reply.host, host_run.read_part, reply.name, size)
        if digest.hexdigest() != reply.sha256:
            raise ValueError("the archive has another digest than the reply")
        file.seek(0)
        if reply.name:
            self._call(reply.host, host_run.discard, reply.name)

    def _end_run(self) -> threading.Thread:
        def end_run() -> None:
            with suppress(Exception):  # Dask lost its scheduler, which ends the jobs, too
                addresses = [each for each in self._hosts.addresses if each in self._known]
                run = self._client_facts.run
                self._client.run(host_run.end_run, run, workers=addresses, on_error="ignore")

        return _start_thread(end_run)

    # --- news ---

    def _handle_news(self, seconds: float) -> None:
        """Handle all news; wait for the first."""
        with suppress(queue.Empty):
            while True:
                news = self._news.get(timeout=seconds)
                seconds = 0.0001
                attempt = self._running.get(news if isinstance(news, str) else news.key)
                if isinstance(news, _Received):
                    self._handle_received(news, attempt)
                elif attempt and isinstance(news, HostEvent):
                    self._handle_event(news, attempt)
                elif attempt and isinstance(news, str):
                    self._handle_end(news, attempt)

    def _handle_event(self, event: HostEvent, attempt: _Attempt) -> None:
        if event.announcement is not None:
            if event.host == attempt.host:
                attempt.announcement = event.announcement
                self._events.on_announcement(event.announcement)
            return
        # Dask runs a task again if its host ends before its result was received.
        if attempt.host and attempt.host != event.host:
            self._hosts.report_loss(attempt.lose_host())
            if attempt.is_culprit:
                self._end_killed(event.key, attempt)
                return
        attempt.host = event.host
        attempt.announcement = None
        attempt.started = time.monotonic()

    def _handle_end(self, key: str, attempt: _Attempt) -> None:
        from distributed import KilledWorker

        if attempt.future.status == "finished":
            _start_thread(self._receive, key, attempt, attempt.future)
        elif attempt.future.status != "error":  # cancelled or lost with the scheduler
            self._retry(key, attempt)
        elif isinstance(error := attempt.future.exception(), KilledWorker):
            # Dask also counts the jobs that waited on a lost host. They did not start there.
            if host := attempt.lose_host():
                self._hosts.report_loss(host)
            if attempt.is_culprit:
                self._end_killed(key, attempt)
            else:
                self._retry(key, attempt)
        else:
            name = f"{type(error).__name__}: {error}"
            message = (
                f"{self._label}: a host cannot run the task: {name}; install the same packages"
            )
            raise ExporterError(ExitCode.ENVIRONMENT, message)

    def _handle_received(self, received: _Received, attempt: _Attempt | None) -> None:
        if not received.key:
            self._hosts.refuse(received.host, (received.problem,))
        elif attempt and received.reply and received.folder:
            self._handle_reply(received.key, attempt, received.reply, received.folder)
        elif attempt:
            model_id = attempt.task.job.spec.id
            self._on_note(f"{received.host}: the reply for {model_id} is lost: {received.problem}")
            attempt.lose_host()
            attempt.avoided.add(received.host)
            self._retry(received.key, attempt)
            self._invalid[received.host] += received.is_invalid
            if self._invalid[received.host] == _MAX_INVALID:
                self._hosts.refuse(received.host, (f"invalid replies: {received.problem}",))
        if received.folder:
            shutil.rmtree(received.folder, ignore_errors=True)

    def _handle_reply(self, key: str, attempt: _Attempt, reply: HostReply, folder: Path) -> None:
        job = attempt.task.job
        if reply.exit_kind is None:
            if reply.refusal:
                self._hosts.refuse(reply.host, reply.refusal)
            self._retry(key, attempt)
            return
        move_files(folder, Path(job.folder))
        result = JobResult(
            job=job,
            exit_kind=reply.exit_kind,
            code=reply.code,
            last_announcement=reply.announcement,
            seconds=reply.seconds,
            has_company=not attempt.task.is_alone,
        )
        self._finish(key, result)

    def _end_killed(self, key: str, attempt: _Attempt) -> None:
        self._client.cancel([attempt.future], force=True)
        self._finish(key, attempt.make_result(ExitKind.SIGNAL))

    def _finish(self, key: str, result: JobResult) -> None:
        self._running.pop(key, None)
        self._ended.append(result)

    def _interrupt(self) -> None:
        """End the running jobs, and receive their finished cells."""
        waiting = [each for each in self._running.values() if not each.host]
        self._client.cancel([each.future for each in waiting], force=True)
        self._end_run()
        until = time.monotonic() + _GRACE_PERIOD
        self._waiting.clear()
        while time.monotonic() < until and any(each.host for each in self._running.values()):
            if self._client.status != "running":
                return
            self._handle_news(_INTERVAL)


def _describe(error: BaseException) -> str:
    """Return one line, also for an exception of Dask with a traceback in its text."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _start_thread(function: Callable[..., None], *values: object) -> threading.Thread:
    """Start a thread that does not keep the program alive."""
    thread = threading.Thread(target=function, args=values, daemon=True)
    thread.start()
    return thread
