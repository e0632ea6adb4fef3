"""Run jobs on a Dask cluster.

The client submits some jobs more than the cluster can run, so that Dask chooses the host and no
host waits. Each host runs a job by its local engine and sends the files back, which are verified by
their digests. `JobAttempt` decides about lost hosts.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text_format import pluralize
from exporter.jobs.job import Announcement
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.pipeline.cluster.attempt import JobAttempt
from exporter.pipeline.cluster.client_files import FileSender, LostHost, move_files, receive_files
from exporter.pipeline.cluster.cluster_hosts import ClusterHosts
from exporter.pipeline.cluster.connection import ClusterConnection
from exporter.pipeline.cluster.host_run import discard_job, interrupt_run, run_job
from exporter.pipeline.cluster.protocol import HostReply, HostRequest, RunContext
from exporter.pipeline.engine import ExitKind, JobEvents, JobResult, Task

#: Seconds between two looks at the cluster.
_INTERVAL = 0.5
#: Jobs that wait in the cluster, for each one that runs there. An adaptive cluster grows with them.
_QUEUED_SHARE, _MIN_QUEUED = 3, 64
#: Seconds in which the client connects to a lost scheduler again.
_RECONNECT_LIMIT = 30.0
#: Seconds in which interrupted jobs end and send their finished cells.
_GRACE_PERIOD = 10.0
#: Refused or failed submissions of one job.
_MAX_SUBMISSIONS = 20


class DaskEngine:
    """Runs jobs on the hosts of a Dask cluster.

    Args:
        connect: Connects to the cluster. It is called once, at the first use.
        make_context: Returns the context of the run and the files of the project.
        on_note: Receives messages for the user.
        local_workers: The jobs that this machine can run in parallel.
    """

    def __init__(
        self,
        connect: Callable[[], ClusterConnection],
        make_context: Callable[[bool], tuple[RunContext, Mapping[str, Path | bytes]]],
        on_note: Callable[[str], None],
        local_workers: int,
    ) -> None:
        self._connect = connect
        self.local_workers = local_workers
        self._make_context = make_context
        self._on_note = on_note
        self._connection: ClusterConnection | None = None

    @property
    def workers(self) -> int:
        """The number of jobs that run in parallel. The first call connects to the cluster."""
        threads: dict[str, int] = self._open().client.nthreads()
        return max(1, sum(threads.values()))

    def run(self, tasks: Sequence[Task], events: JobEvents) -> None:
        """Run all tasks and those that `events` returns.

        Raises:
            ExporterError: ENVIRONMENT, if no host can run jobs or the scheduler is lost.
            KeyboardInterrupt: after all running jobs were ended and reported.
        """
        connection = self._open()
        try:
            context, files = self._make_context(connection.is_local)
            run = _ClusterRun(connection, context, files, events, self._on_note)
            run.run(tasks)
        finally:
            self._connection = None
            connection.close()

    def _open(self) -> ClusterConnection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection


class _ClusterRun:
    """One run on a cluster."""

    def __init__(
        self,
        connection: ClusterConnection,
        context: RunContext,
        files: Mapping[str, Path | bytes],
        events: JobEvents,
        on_note: Callable[[str], None],
    ) -> None:
        self._client = connection.client
        self._label = connection.label
        self._context = context
        self._events = events
        self._on_note = on_note
        self._hosts = ClusterHosts(connection, on_note)
        self._sender = FileSender(self._client, files, context.run)
        self._waiting: deque[JobAttempt] = deque()
        self._running: dict[str, JobAttempt] = {}
        #: Keys of finished tasks and events of hosts, from the threads of Dask.
        self._news: queue.Queue[tuple[str, dict[str, str]]] = queue.Queue()
        self._count = 0
        self._numbers: dict[str, int] = {}
        #: By the number of the attempt. Dask runs a task again if its host ends before its result
        #: was received.
        self._starts: Counter[int] = Counter()
        self._lost_hosts: dict[str, None] = {}

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks and those that follow them."""
        self._waiting.extend(self._make_attempt(task) for task in tasks)
        self._client.subscribe_topic(self._context.run, self._receive_event)
        try:
            while self._waiting or self._running:
                self._require_scheduler()
                self._submit_waiting()
                self._handle_news(_INTERVAL)
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):
                self._interrupt()
            for attempt in self._running.values():
                self._events.on_job_end(_make_result(attempt, ExitKind.INTERRUPTED))
            raise
        finally:
            self._client.unsubscribe_topic(self._context.run)
            self._client.cancel([each.future for each in self._running.values()], force=True)
            self._report_repetitions()

    def _make_attempt(self, task: Task, priority: int = 0) -> JobAttempt:
        self._count += 1
        return JobAttempt(number=self._count, task=task, priority=priority)

    def _receive_event(self, event: tuple[float, dict[str, str]]) -> None:
        self._news.put(("event", event[1]))

    # --- submission ---

    def _submit_waiting(self) -> None:
        self._hosts.update()
        for key, attempt in tuple(self._running.items()):
            if self._hosts.is_stuck(attempt.allowed):
                self._client.cancel([attempt.future], force=True)
                self._retry(key, attempt)
        limit = max(_MIN_QUEUED, _QUEUED_SHARE * self._hosts.slots)
        while self._waiting and len(self._running) < limit and not self._hosts.are_refused:
            self._submit(self._waiting.popleft())

    def _submit(self, attempt: JobAttempt) -> None:
        job = attempt.task.job
        attempt.submissions += 1
        if attempt.submissions > _MAX_SUBMISSIONS:
            message = f"{self._label}: no host accepts {job.spec.id}; see the messages above"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        key = f"{job.spec.id}-{self._context.run}-{attempt.number}.{attempt.submissions}"
        folder = JobFolder(Path(job.folder))
        # The job is written first: if this process is killed, recovery needs it.
        write_json(folder.job, job)
        request = HostRequest(
            context=self._context,
            key=key,
            job=job.to_json(indent=None),
            seconds=attempt.task.seconds,
        )
        attempt.host = ""
        attempt.allowed = self._hosts.list_allowed(attempt.avoided)
        attempt.future = self._client.submit(
            run_job,
            request,
            key=key,
            pure=False,
            priority=attempt.priority,
            workers=attempt.allowed,
            resources=self._hosts.choose_resources(job),
        )
        self._running[key] = attempt
        self._numbers[key] = attempt.number
        attempt.future.add_done_callback(lambda _: self._news.put(("done", {"key": key})))

    # --- news ---

    def _handle_news(self, seconds: float) -> None:
        """Handle all news; wait for the first."""
        with suppress(queue.Empty):
            while True:
                kind, event = self._take_news(seconds)
                seconds = 0.0001
                attempt = self._running.get(event["key"])
                if attempt is None:
                    continue  # of an earlier submission
                if kind == "done":
                    self._handle_end(event["key"], attempt)
                else:
                    self._handle_event(event, attempt)

    def _take_news(self, seconds: float) -> tuple[str, dict[str, str]]:
        """Return the next event, and count the starts of all jobs.

        Raises:
            queue.Empty: if there is none in time.
        """
        kind, event = self._news.get(timeout=seconds)
        if event.get("kind") == "started" and event["key"] in self._numbers:
            self._starts[self._numbers[event["key"]]] += 1
        return kind, event

    def _report_repetitions(self) -> None:
        """Report how many jobs ran again, and which hosts were lost."""
        with suppress(queue.Empty):
            while True:
                self._take_news(0.0001)
        if count := sum(starts - 1 for starts in self._starts.values()):
            hosts = f": {', '.join(self._lost_hosts)}" if self._lost_hosts else ""
            self._on_note(f"{pluralize(count, 'job')} ran again, because a host was lost{hosts}")

    def _handle_event(self, event: dict[str, str], attempt: JobAttempt) -> None:
        if event["kind"] == "started":
            previous, announcement = attempt.host, attempt.announcement
            if attempt.begin(event["host"]):
                self._report_loss(previous)
                if attempt.is_culprit:
                    attempt.announcement = announcement
                    self._end_killed(event["key"], attempt)
        elif event["host"] == attempt.host:
            attempt.announcement = Announcement.model_validate_json(event["value"])
            self._events.on_announcement(attempt.announcement)

    def _handle_end(self, key: str, attempt: JobAttempt) -> None:
        future: Any = attempt.future
        if future.status == "finished":
            try:
                reply: HostReply = future.result()
            except (OSError, RuntimeError, LostHost):
                self._retry(key, attempt)
                return
            self._handle_reply(key, attempt, reply)
        elif future.status == "error":
            self._handle_error(key, attempt, future.exception())
        else:  # cancelled or lost with the scheduler
            self._retry(key, attempt)

    def _handle_error(self, key: str, attempt: JobAttempt, error: BaseException) -> None:
        from distributed import KilledWorker

        if not isinstance(error, KilledWorker):
            name = f"{type(error).__name__}: {error}"
            message = (
                f"{self._label}: a host cannot run the task: {name}; install the same packages"
            )
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        # Dask also counts the jobs that waited on a lost host. They did not start there.
        host = attempt.lose_host()
        self._report_loss(host)
        if attempt.is_culprit:
            self._end_killed(key, attempt)
        else:
            attempt.avoided |= {host} if host else set()
            self._retry(key, attempt)

    def _handle_reply(self, key: str, attempt: JobAttempt, reply: HostReply) -> None:
        address = self._hosts.find_address(reply.host)
        if reply.missing or reply.refusal:
            attempt.host = ""
            if reply.refusal:
                self._hosts.refuse(reply.host, reply.refusal)
            elif address:
                self._sender.send(reply.missing, address)
            self._retry(key, attempt)
            return
        if reply.exit_kind is None:
            raise ExporterError(ExitCode.ENVIRONMENT, f"{reply.host}: sent an empty reply")
        job = attempt.task.job
        try:
            if self._context.tree:
                receive_files(self._client, address, reply, Path(job.folder))
            elif reply.folder:
                move_files(Path(reply.folder), Path(job.folder))
        except LostHost:
            attempt.lose_host()
            self._report_loss(reply.host)
            self._retry(key, attempt)
            return
        if any(file.content is None for file in reply.files):
            self._client.run(discard_job, reply.folder, workers=[address], on_error="ignore")
        announcement = (
            Announcement.model_validate_json(reply.announcement) if reply.announcement else None
        )
        self._finish(
            key,
            JobResult(
                job=job,
                exit_kind=reply.exit_kind,
                code=reply.code,
                last_announcement=announcement,
                seconds=reply.seconds,
            ),
        )

    def _retry(self, key: str, attempt: JobAttempt) -> None:
        self._running.pop(key)
        attempt.priority = 1
        self._waiting.appendleft(attempt)

    def _end_killed(self, key: str, attempt: JobAttempt) -> None:
        self._client.cancel([attempt.future], force=True)
        self._finish(key, _make_result(attempt, ExitKind.SIGNAL))

    def _finish(self, key: str, result: JobResult) -> None:
        self._running.pop(key, None)
        # The next jobs run meanwhile: the cluster has more than it can run.
        if task := self._events.on_job_end(result):
            self._waiting.appendleft(self._make_attempt(task, priority=1))

    def _report_loss(self, host: str) -> None:
        if host:
            self._lost_hosts[host] = None

    # --- the scheduler ---

    def _require_scheduler(self) -> None:
        """Wait for a lost scheduler, and submit the unfinished jobs again.

        Raises:
            ExporterError: ENVIRONMENT, if it does not come back.
        """
        if self._client.status == "running":
            return
        self._on_note(
            f"{self._label}: the scheduler is lost; waiting {_RECONNECT_LIMIT:g} s for it"
        )
        until = time.monotonic() + _RECONNECT_LIMIT
        while self._client.status == "connecting" and time.monotonic() < until:
            time.sleep(_INTERVAL)
        if self._client.status != "running":
            count = pluralize(len(self._running) + len(self._waiting), "job")
            message = (
                f"{self._label}: the scheduler is lost, and {count} did not finish; the results so "
                "far are kept: start the scheduler and run the export again"
            )
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        self._client.subscribe_topic(self._context.run, self._receive_event)
        for key in tuple(self._running):
            self._retry(key, self._running[key])

    def _interrupt(self) -> None:
        """End the running jobs, and receive their finished cells."""
        waiting = [each for each in self._running.values() if not each.host]
        self._client.cancel([each.future for each in waiting], force=True)
        threading.Thread(
            target=self._interrupt_hosts, args=(self._hosts.addresses,), daemon=True
        ).start()
        until = time.monotonic() + _GRACE_PERIOD
        self._waiting.clear()
        while time.monotonic() < until and any(each.host for each in self._running.values()):
            if self._client.status != "running":
                return
            self._handle_news(_INTERVAL)

    def _interrupt_hosts(self, addresses: list[str]) -> None:
        # The connection ends if the scheduler is lost, or when all jobs have ended.
        with suppress(OSError):
            self._client.run(interrupt_run, self._context.run, workers=addresses, on_error="ignore")


def _make_result(attempt: JobAttempt, exit_kind: ExitKind) -> JobResult:
    """Return the end of a job that sent no reply."""
    return JobResult(
        job=attempt.task.job,
        exit_kind=exit_kind,
        code=signal.SIGKILL if exit_kind is ExitKind.SIGNAL else 0,
        last_announcement=attempt.announcement,
        seconds=time.monotonic() - attempt.started if attempt.started else 0.0,
    )
