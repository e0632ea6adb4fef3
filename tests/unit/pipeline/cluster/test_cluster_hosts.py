"""The hosts of a cluster that may run a job."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.core.errors import ExporterError
from exporter.jobs.job import Job
from exporter.manifest import Device
from exporter.pipeline.cluster.cluster_hosts import ClusterHosts
from exporter.pipeline.cluster.connection import ClusterConnection
from tests.unit.pipeline import builders


def make_hosts(notes: list[str], **resources: dict[str, float]) -> ClusterHosts:
    """Return the hosts with these names and resources, one Dask worker each."""
    workers = {
        f"tcp://{name}:1": {
            "host": name,
            "local_directory": "/scratch/dask/worker-1",
            "nthreads": 2,
            "resources": each,
        }
        for name, each in resources.items()
    }
    client: Any = SimpleNamespace(scheduler_info=lambda n_workers: {"workers": workers})
    connection = ClusterConnection(client=client, cluster=None, label="it", is_local=False)
    hosts = ClusterHosts(connection, notes.append)
    hosts.update()
    return hosts


def make_job(tmp_path: Path, memory: int | None = None, *providers: str) -> Job:
    job = builders.job(tmp_path, builders.spec(memory=memory))
    device = Device(name="gpu", runtime="onnxruntime", providers=providers)
    opsets = tuple(opset.model_copy(update={"devices": (device,)}) for opset in job.opsets)
    return job.model_copy(update={"opsets": opsets}) if providers else job


def test_all_hosts_are_allowed_at_first() -> None:
    hosts = make_hosts([], a={}, b={})
    assert hosts.slots == 4
    assert hosts.list_allowed() is None


def test_a_refused_host_gets_no_jobs_and_one_message() -> None:
    notes: list[str] = []
    hosts = make_hosts(notes, a={}, b={})
    for _ in range(2):
        hosts.refuse("a:/scratch/dask/exporter", ("torch: 2.12 instead of 2.13",))
    assert hosts.slots == 2
    assert hosts.list_allowed() == ["tcp://b:1"]
    assert notes == ["a:/scratch/dask/exporter runs no jobs: torch: 2.12 instead of 2.13"]


def test_the_run_ends_if_all_hosts_refuse_and_no_other_one_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = make_hosts([], a={})
    hosts.refuse("a:/scratch/dask/exporter", ("torch: 2.12 instead of 2.13",))
    hosts.update()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    with pytest.raises(ExporterError) as error:
        hosts.update()
    first, second = map(str, error.value.problems)
    assert first.endswith("exporter cannot run jobs: torch: 2.12 instead of 2.13")
    assert second.startswith("it: no host of the cluster can run jobs; install")


def test_a_host_is_avoided_only_if_there_is_another_one() -> None:
    hosts = make_hosts([], a={}, b={})
    assert hosts.list_allowed({"a:/scratch/dask/exporter"}) == ["tcp://b:1"]
    single = make_hosts([], a={})
    assert single.list_allowed({"a:/scratch/dask/exporter"}) == ["tcp://a:1"]


def test_a_job_whose_hosts_left_is_stuck() -> None:
    hosts = make_hosts([], a={})
    assert not hosts.is_stuck(None)
    assert not hosts.is_stuck(["tcp://a:1", "tcp://b:1"])
    assert hosts.is_stuck(["tcp://b:1"])


def test_a_job_for_a_gpu_needs_a_worker_that_declares_one(tmp_path: Path) -> None:
    job = make_job(tmp_path, None, "CUDAExecutionProvider")
    notes: list[str] = []
    assert make_hosts(notes, a={"GPU": 1}, b={}).choose_resources(job) == {"GPU": 1}
    assert make_hosts(notes).choose_resources(job) == {"GPU": 1}  # an adaptive cluster
    assert not notes
    hosts = make_hosts(notes, a={})
    assert hosts.choose_resources(job) is None
    assert notes == ["it: no worker declares the resource GPU; jobs for GPUs run on any worker"]


def test_memory_counts_if_workers_declare_it(tmp_path: Path) -> None:
    job = make_job(tmp_path, 1 << 30)
    assert make_hosts([], a={"MEMORY": 4e9}).choose_resources(job) == {"MEMORY": 1 << 30}
    assert make_hosts([], a={}).choose_resources(job) is None
    assert make_hosts([], a={"GPU": 1}).choose_resources(make_job(tmp_path)) is None
