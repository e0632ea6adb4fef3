"""The hosts of a cluster: which of them may run jobs, and with which resources."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.jobs.job import Job
from exporter.pipeline.cluster.connection import ClusterConnection
from exporter.pipeline.cluster.protocol import name_host

#: Seconds between two requests of the list of workers.
_INTERVAL = 1.0
#: Seconds without a usable worker after which the user gets a message.
_PATIENCE = 5.0
#: The resources that the Dask workers of a host declare: `dask worker --resources "GPU=1"`.
GPU, MEMORY = "GPU", "MEMORY"
_GPU_PROVIDERS = ("CUDA", "Tensorrt", "NvTensorRTRTX", "ROCM", "MIGraphX")
_GPU_DEVICES = ("GPU", "CUDA")


class ClusterHosts:
    """The Dask workers of a cluster, grouped by host.

    Args:
        connection: The cluster.
        on_note: Receives messages for the user.
    """

    def __init__(self, connection: ClusterConnection, on_note: Callable[[str], None]) -> None:
        self._client = connection.client
        self._label = connection.label
        self._on_note = on_note
        self._workers: Mapping[str, Mapping[str, Any]] = {}
        self._refused: dict[str, tuple[str, ...]] = {}
        self._updated = 0.0
        self._started = self._refused_since = time.monotonic()
        self._notes: set[str] = set()

    @property
    def addresses(self) -> list[str]:
        """The addresses of all Dask workers."""
        return list(self._workers)

    @property
    def slots(self) -> int:
        """The number of jobs that run in parallel."""
        return sum(
            worker["nthreads"]
            for worker in self._workers.values()
            if _find_host(worker) not in self._refused
        )

    @property
    def are_refused(self) -> bool:
        """Whether there are hosts, and all of them refuse jobs."""
        return bool(self._workers) and not self.slots

    def update(self) -> None:
        """Read the list of Dask workers, if some time has passed.

        Raises:
            ExporterError: ENVIRONMENT, if all hosts have refused jobs for some seconds.
        """
        if time.monotonic() - self._updated < _INTERVAL:
            return
        self._workers = self._client.scheduler_info(n_workers=-1)["workers"]
        self._updated = time.monotonic()
        if not self._workers and self._updated - self._started > _PATIENCE:
            self._note(f"{self._label}: has no worker yet; waiting for `dask worker ADDRESS`")
        if not self.are_refused:
            self._refused_since = self._updated
        # Another host may join a moment after the first one was refused.
        elif self._updated - self._refused_since > _PATIENCE:
            problems = [
                Problem(message=f"{self._label}: {host} cannot run jobs: {reason}")
                for host, reasons in self._refused.items()
                for reason in reasons
            ]
            fix = "install the packages of this environment on the hosts"
            message = f"{self._label}: no host of the cluster can run jobs; {fix}"
            raise ExporterError(ExitCode.ENVIRONMENT, (*problems, Problem(message=message)))

    def find_address(self, host: str) -> str:
        """Return the address of a Dask worker of a host, or "" if there is none."""
        workers = self._workers.items()
        return next((each for each, worker in workers if _find_host(worker) == host), "")

    def refuse(self, host: str, reasons: tuple[str, ...]) -> None:
        """Exclude a host from now on."""
        self._refused[host] = reasons
        self._note(f"{host} runs no jobs: {'; '.join(reasons)}")
        self._updated = 0.0

    def list_allowed(self, avoided: Collection[str] = ()) -> list[str] | None:
        """Return the addresses that may run a job, or None for all, also later ones.

        Args:
            avoided: Hosts that another one replaces, if there is another one.
        """
        if not self._refused and not avoided:
            return None
        allowed = [
            address
            for address, worker in self._workers.items()
            if _find_host(worker) not in self._refused
        ]
        others = [each for each in allowed if _find_host(self._workers[each]) not in avoided]
        return others or allowed or None

    def is_stuck(self, allowed: Collection[str] | None) -> bool:
        """Return True if none of these Dask workers exists any more."""
        return allowed is not None and not self._workers.keys() & set(allowed)

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


def _find_host(worker: Mapping[str, Any]) -> str:
    return name_host(worker["host"], worker["local_directory"])
