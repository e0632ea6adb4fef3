"""The Dask workers of a cluster: which of them may run jobs, and with which resources.

A thread asks the scheduler for their list, so that neither a silent scheduler nor a silent host
stops the jobs of the other hosts.

A cluster that the program starts listens on the loopback interface only. Others have the settings
of Dask, which include TLS.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.core.errors import ExitCode, ExporterError, Problem, suggest_nearest
from exporter.core.import_object import load_attribute
from exporter.core.text import join_lines, pluralize
from exporter.jobs import Job
from exporter.manifest import Project
from exporter.manifest.resolved.keys import is_scheduler

_LOOPBACK = "127.0.0.1"
#: Seconds until a scheduler must respond.
_CONNECT_LIMIT = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """An open connection."""

    client: Any
    """`distributed.Client`."""
    cluster: Any
    """The cluster that this process started, or None."""
    label: str
    """The setting that selects the cluster, for messages."""

    def close(self) -> None:
        """Disconnect; end the cluster if this process started it."""
        # A client whose scheduler is lost raises exceptions of many classes.
        with _quiet(), suppress(Exception):
            self.client.close(timeout=5)
        with _quiet(), suppress(Exception):
            if self.cluster is not None:
                self.cluster.close(timeout=10)


def require_dask(project: Project) -> None:
    """Raise if `distributed` is not installed.

    Raises:
        ExporterError: ENVIRONMENT.
    """
    if importlib.util.find_spec("distributed") is None:
        label = project.locate("engine")
        message = (
            f"{label}: the package distributed is not installed; run `pip install distributed`"
        )
        raise ExporterError(ExitCode.ENVIRONMENT, f"{message}, or use --engine local")


def connect(project: Project, root: Path, scratch: Path, workers: int) -> ClusterConnection:
    """Return a connection to the cluster of the settings.

    `scratch` is for copies of the project of a cluster on this machine.

    Raises:
        ExporterError: ENVIRONMENT if there is no connection, MANIFEST if the function that returns
            a cluster is missing or fails.
    """
    require_dask(project)
    # The engine reports lost hosts and a lost scheduler itself.
    importlib.import_module("distributed")  # sets the levels of its loggers
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    label = f"{project.locate('engine')}: {project.engine}"
    if is_scheduler(project.engine):
        return _connect_to(project.engine, label)
    if project.engine != "dask":
        cluster = _make_cluster(project.engine, label, root)
        return _connect_to(cluster, label, cluster)
    with _quiet():
        from distributed import LocalCluster

        cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=workers,
            processes=True,
            local_directory=str(scratch),
            host=_LOOPBACK,
            dashboard_address=f"{_LOOPBACK}:0",
            worker_dashboard_address=f"{_LOOPBACK}:0",
            memory_limit=0,  # each job has a limit of its own
            silence_logs=logging.CRITICAL,
        )
    return _connect_to(cluster, f"{label}: the cluster on this machine", cluster)


def _connect_to(target: Any, label: str, cluster: Any = None) -> ClusterConnection:
    from distributed import Client

    try:
        with _quiet():
            client = Client(
                target,
                timeout=_CONNECT_LIMIT,
                set_as_default=False,
                # Replies of hosts are bytes. A pickle could run code in this process.
                deserializers=["msgpack", "error"],
            )
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        if cluster is not None:
            cluster.close()
        reason = join_lines(str(error) or type(error).__name__)
        message = f"{label}: no scheduler accepts the connection: {reason}; start one with "
        message += "`dask scheduler`, or correct the address, such as tcp://10.0.0.1:8786"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from None
    return ClusterConnection(client=client, cluster=cluster, label=label)


def _make_cluster(function: str, label: str, root: Path) -> Any:
    """Call the function of the project, and return its cluster.

    Raises:
        ExporterError: MANIFEST if the file or the function is missing, or the function fails.
    """
    from distributed.deploy.cluster import Cluster

    file, _, name = function.rpartition(":")
    if not (root / file).is_file():
        message = f"{label}: the project has no file {file}; create it with a function {name}"
        raise ExporterError(ExitCode.MANIFEST, message)
    try:
        functions = load_attribute(f"{file}:__dict__", root)
        make = functions.get(name)
        cluster = make() if callable(make) else None
    except Exception as error:
        message = f"{label}: fails with {type(error).__name__}: {join_lines(str(error))}; correct "
        raise ExporterError(ExitCode.MANIFEST, f"{message}{file}") from error
    if not callable(make):
        nearest = suggest_nearest(name, [each for each in functions if callable(functions[each])])
        message = f"{label}: the file has no function {name}{nearest or f'; add it to {file}'}"
        raise ExporterError(ExitCode.MANIFEST, message)
    if not isinstance(cluster, Cluster):
        message = f"{label}: the function returned {type(cluster).__name__}, expected a cluster of "
        message += "Dask; return one, such as SLURMCluster"
        raise ExporterError(ExitCode.MANIFEST, message)
    return cluster


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings of Dask, such as one for a used port of its dashboard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


#: Seconds between two requests of the list of workers.
_INTERVAL = 0.5
#: Seconds without a usable worker after which the user gets a message.
_PATIENCE = 5.0
#: Seconds without a host after the last one left.
_EMPTY_LIMIT = 60.0
#: Seconds without a response, after which the scheduler counts as lost or the jobs of a host run
#: elsewhere. Dask itself waits 5 minutes for a host.
_SILENCE = 30.0
#: The resources that the Dask workers of a host declare: `dask worker --resources "GPU=1"`.
GPU, MEMORY = "GPU", "MEMORY"
_GPU_PROVIDERS = ("CUDA", "Tensorrt", "NvTensorRTRTX", "ROCM", "MIGraphX")
_GPU_DEVICES = ("GPU", "CUDA")


class ClusterHosts:
    """The Dask workers of a cluster by their addresses."""

    def __init__(self, connection: ClusterConnection, on_note: Callable[[str], None]) -> None:
        self._client = connection.client
        self._label = connection.label
        self._on_note = on_note
        self._workers: Mapping[str, Mapping[str, Any]] = {}
        self._refused: dict[str, tuple[str, ...]] = {}
        #: By silent host: the keys of the tasks that it has.
        self._silent: dict[str, tuple[str, ...]] = {}
        #: By host: the last heartbeat that the scheduler received, and when this process read it.
        self._heartbeats: dict[str, tuple[float, float]] = {}
        #: The last response of the scheduler, and its time.
        self._latest = self._workers, self._silent, time.monotonic()
        self._started = self._refused_since = time.monotonic()
        #: When there was a host; 0 before the first one.
        self._last_seen = 0.0
        self._notes: set[str] = set()
        self._is_closed = threading.Event()

    def watch(self) -> None:
        """Read the list of workers now, and then in the background until `close`."""
        self.read()
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        self._is_closed.set()

    def _watch(self) -> None:
        while not self._is_closed.wait(_INTERVAL):
            # A client without scheduler raises many classes; `update` reports the loss.
            with suppress(Exception):
                self.read()

    def read(self) -> None:
        """Read the list of workers, and the tasks of silent ones."""
        # `scheduler_info` may return the list without workers that the client reads by itself.
        identity = self._client.scheduler.identity
        workers = self._client.sync(identity, n_workers=-1)["workers"]
        now = time.monotonic()
        for address, worker in workers.items():
            heartbeat, read = self._heartbeats.get(address, (None, now))
            is_new = worker["last_seen"] != heartbeat
            self._heartbeats[address] = (worker["last_seen"], now if is_new else read)
        silent = [each for each in workers if now - self._heartbeats[each][1] > _SILENCE]
        tasks = self._client.processing(silent) if silent else {}
        stuck = {each: tuple(map(str, tasks.get(each, ()))) for each in silent}
        self._latest = workers, stuck, now

    def update(self) -> None:
        """Use the last list of Dask workers.

        Raises:
            ExporterError: ENVIRONMENT, if all hosts have refused jobs for some seconds, the last
                one left a minute ago, or the scheduler is lost.
        """
        previous = self._workers
        self._workers, silent, read = self._latest
        now = time.monotonic()
        if self._client.status != "running" or now - read > _SILENCE:
            raise ExporterError(ExitCode.ENVIRONMENT, f"{self._label}: the scheduler is lost")
        for address in previous.keys() - self._workers.keys():
            self.report_loss(address)
        for address in silent.keys() - self._silent.keys():
            count = pluralize(len(silent[address]), "job")
            self._on_note(
                f"{address} does not respond for {_SILENCE:g} s; its {count} run on other hosts"
            )
        self._silent = silent
        if self._workers:
            self._last_seen = now
        elif self._last_seen and now - self._last_seen > _EMPTY_LIMIT:
            message = f"{self._label}: the last host left {_EMPTY_LIMIT:g} s ago"
            raise ExporterError(ExitCode.ENVIRONMENT, message)
        if not self._workers and now - self._started > _PATIENCE:
            self._note(f"{self._label}: has no worker yet; waiting for `dask worker ADDRESS`")
        if not self.are_refused:
            self._refused_since = now
        # Another host may join a moment after the first one was refused.
        elif now - self._refused_since > _PATIENCE:
            problems = [
                Problem(message=f"{self._label}: {host} cannot run jobs: {reason}")
                for host, reasons in self._refused.items()
                for reason in reasons
            ]
            fix = "install the packages of this environment on the hosts"
            message = f"{self._label}: no host of the cluster can run jobs; {fix}"
            raise ExporterError(ExitCode.ENVIRONMENT, (*problems, Problem(message=message)))

    @property
    def addresses(self) -> list[str]:
        """The addresses of all Dask workers that respond."""
        return [address for address in self._workers if address not in self._silent]

    @property
    def slots(self) -> int:
        """The number of jobs that run in parallel."""
        return sum(
            worker["nthreads"]
            for address, worker in self._workers.items()
            if address not in self._refused and address not in self._silent
        )

    @property
    def are_refused(self) -> bool:
        return bool(self._workers) and self._workers.keys() <= self._refused.keys()

    def refuse(self, address: str, reasons: tuple[str, ...]) -> None:
        self._refused[address] = reasons
        self._note(f"{address} runs no jobs: {'; '.join(reasons)}")

    def report_loss(self, address: str) -> None:
        """Report that a host left. Its jobs run again, also those that it had finished."""
        self._note(f"{address} left the cluster; its unfinished jobs run again on other hosts")

    def list_allowed(self, avoided: Collection[str] = ()) -> list[str] | None:
        """Return the addresses that may run a job, or None for all, also later ones.

        Args:
            avoided: Hosts that another one replaces, if there is another one.
        """
        if not (self._refused or self._silent or avoided):
            return None
        allowed = [each for each in self._workers if each not in self._refused]
        responding = [each for each in allowed if each not in self._silent]
        return [e for e in responding if e not in avoided] or responding or allowed or None

    def is_stuck(self, key: str, host: str, allowed: Collection[str] | None) -> bool:
        """Return True if a job must run elsewhere: its hosts left, or do not respond."""
        if allowed is not None and not self._workers.keys() & set(allowed):
            return True
        is_silent = host in self._silent or any(key in keys for keys in self._silent.values())
        return is_silent and self.slots > 0

    def choose_resources(self, job: Job) -> dict[str, float] | None:
        """Return the resources that a Dask worker must have for a job, or None."""
        declared = {name for each in self._workers.values() for name in each["resources"]}
        resources: dict[str, float] = {}
        if needs_gpu(job):
            if GPU in declared or not self._workers:
                resources[GPU] = 1
            else:
                text = f"no worker declares the resource {GPU}; jobs for GPUs run on any worker"
                self._note(f"{self._label}: {text}")
        if job.spec.memory and MEMORY in declared:
            resources[MEMORY] = job.spec.memory
        return resources or None

    def _note(self, message: str) -> None:
        """Report a message once."""
        if message not in self._notes:
            self._notes.add(message)
            self._on_note(message)


def needs_gpu(job: Job) -> bool:
    """Return True if a job exports or checks on a GPU."""
    devices = [device for opset in job.opsets for device in opset.devices]
    return (
        job.spec.export_device.startswith("cuda")
        or any(name.startswith(_GPU_PROVIDERS) for each in devices for name in each.providers)
        or any((each.device or "").startswith(_GPU_DEVICES) for each in devices)
    )
