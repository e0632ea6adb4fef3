"""The hosts of a cluster that may run a job."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.cluster import cluster_hosts
from exporter.cluster.cluster_hosts import (
    ClusterConnection,
    ClusterHosts,
    connect,
    require_dask,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs import Job
from exporter.manifest import Device, Project
from tests.faults.dask_cluster import find_port
from tests.unit.pipeline import builders


def make_hosts(notes: list[str], **resources: dict[str, float]) -> ClusterHosts:
    """Return the hosts with these names and resources, one Dask worker each."""
    return Hosts(notes, **resources).hosts


class Hosts:
    """Hosts whose scheduler is this object."""

    status = "running"

    def __init__(self, notes: list[str], **resources: dict[str, float]) -> None:
        self.workers: dict[str, dict[str, Any]] = {
            f"tcp://{name}:1": {"nthreads": 2, "resources": each, "last_seen": 0.0}
            for name, each in resources.items()
        }
        connection = ClusterConnection(client=self, cluster=None, label="it")
        self.hosts = ClusterHosts(connection, notes.append)
        self.update()

    @property
    def scheduler(self) -> Hosts:
        return self

    def sync(self, function: Callable[..., Any], **values: int) -> Any:
        return function(**values)

    def identity(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        return {"workers": {name: dict(worker) for name, worker in self.workers.items()}}

    def processing(self, workers: list[str]) -> dict[str, list[str]]:
        return {worker: [f"job on {worker}"] for worker in workers}

    def update(self) -> None:
        self.hosts.read()
        self.hosts.update()


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
        hosts.refuse("tcp://a:1", ("torch: 2.12 instead of 2.13",))
    assert hosts.slots == 2
    assert hosts.list_allowed() == ["tcp://b:1"]
    assert notes == ["tcp://a:1 runs no jobs: torch: 2.12 instead of 2.13"]


def test_the_run_ends_if_all_hosts_refuse_and_no_other_one_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Hosts([], a={})
    cluster.hosts.refuse("tcp://a:1", ("torch: 2.12 instead of 2.13",))
    cluster.update()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 10)
    with pytest.raises(ExporterError) as error:
        cluster.update()
    first, second = map(str, error.value.problems)
    assert first.endswith("tcp://a:1 cannot run jobs: torch: 2.12 instead of 2.13")
    assert second.startswith("it: no host of the cluster can run jobs; install")


def test_a_host_is_avoided_only_if_there_is_another_one() -> None:
    hosts = make_hosts([], a={}, b={})
    assert hosts.list_allowed({"tcp://a:1"}) == ["tcp://b:1"]
    single = make_hosts([], a={})
    assert single.list_allowed({"tcp://a:1"}) == ["tcp://a:1"]


def test_a_job_whose_hosts_left_is_stuck() -> None:
    cluster = Hosts(notes := [], a={}, b={})
    assert not cluster.hosts.is_stuck("key", "", None)
    assert not cluster.hosts.is_stuck("key", "", ["tcp://a:1"])
    del cluster.workers["tcp://a:1"]
    cluster.update()
    assert not cluster.hosts.is_stuck("key", "", ["tcp://a:1", "tcp://b:1"])
    assert cluster.hosts.is_stuck("key", "", ["tcp://a:1"])
    assert notes == [
        "tcp://a:1 left the cluster; its unfinished jobs run again on other hosts",
    ]


def test_jobs_of_a_silent_host_run_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Hosts(notes := [], a={}, b={})
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 31)
    cluster.workers["tcp://b:1"]["last_seen"] = 31.0
    cluster.update()
    assert notes == ["tcp://a:1 does not respond for 30 s; its 1 job run on other hosts"]
    assert cluster.hosts.list_allowed() == ["tcp://b:1"]
    assert cluster.hosts.is_stuck("key", "tcp://a:1", None)
    assert cluster.hosts.is_stuck("job on tcp://a:1", "", None)
    assert not cluster.hosts.is_stuck("key", "tcp://b:1", None)
    cluster.workers["tcp://a:1"]["last_seen"] = 32.0  # it continues
    cluster.update()
    assert cluster.hosts.list_allowed() is None
    assert not cluster.hosts.is_stuck("key", "tcp://a:1", None)


def test_jobs_wait_for_a_silent_host_without_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Hosts([], a={})
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 31)
    cluster.update()
    assert not cluster.hosts.is_stuck("key", "tcp://a:1", None)
    assert cluster.hosts.list_allowed() == ["tcp://a:1"]


def test_a_scheduler_that_closes_or_is_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Hosts([], a={})
    now = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now + 31)
        with pytest.raises(ExporterError, match="it: the scheduler is lost"):
            cluster.hosts.update()
    cluster.hosts.update()
    cluster.status = "connecting"
    with pytest.raises(ExporterError, match="it: the scheduler is lost"):
        cluster.hosts.update()


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


def declare(engine: str, /, **lines: int) -> Project:
    return Project(root="/project", devices=(), engine=engine, lines=lines)


def connect_error(root: Path, engine: str) -> ExporterError:
    with pytest.raises(ExporterError) as error:
        connect(declare(engine, engine=7), root, root / "build", 1)
    return error.value


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    require_dask(declare("dask"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    for lines, label in (
        ({"engine": 7}, "pyproject.toml:7: tool.exporter.engine"),
        ({}, "--engine"),
    ):
        with pytest.raises(ExporterError, match="run `pip install distributed`") as error:
            require_dask(declare("dask", **lines))
        assert str(error.value).startswith(f"{label}: the package")
        assert error.value.exit_code is ExitCode.ENVIRONMENT


def test_an_address_without_a_scheduler_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_hosts, "_CONNECT_LIMIT", 0.5)
    address = f"tcp://127.0.0.1:{find_port()}"
    error = connect_error(tmp_path, address)
    message = f"pyproject.toml:7: tool.exporter.engine: {address}: no scheduler accepts"
    assert str(error).startswith(message)
    assert "start one with `dask scheduler`" in str(error)
    assert error.exit_code is ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "the project has no file cluster.py; create it with a function make"),
        ("def made(): ...", "the file has no function make; did you mean 'made'?"),
        ("import no_such_package", "fails with ModuleNotFoundError: No module named 'no_such"),
        ("def make(: ...", "fails with SyntaxError"),
        ("def make(): raise ValueError('no quota')", "fails with ValueError: no quota; correct"),
        ("def make(): return 3", "the function returned int, expected a cluster of Dask"),
    ],
)
def test_a_wrong_cluster_function_is_reported(
    tmp_path: Path, code: str | None, message: str, request: pytest.FixtureRequest
) -> None:
    name = f"cluster_{request.node.callspec.indices['code']}.py"
    if code is not None:
        (tmp_path / name).write_text(code)
    error = connect_error(tmp_path, f"{name}:make")
    label = f"pyproject.toml:7: tool.exporter.engine: {name}:make: "
    assert str(error).startswith(label + message.replace("cluster.py", name))
    assert error.exit_code is ExitCode.MANIFEST


def test_the_cluster_of_a_function_is_used_and_ended(tmp_path: Path) -> None:
    code = "from distributed import LocalCluster\nmake = lambda: LocalCluster(n_workers=0, "
    (tmp_path / "own_cluster.py").write_text(f"{code}processes=False, dashboard_address=None)")
    connection = connect(declare("own_cluster.py:make", engine=7), tmp_path, tmp_path, 1)
    try:
        assert connection.client.scheduler_info()["workers"] == {}
        assert connection.label == "pyproject.toml:7: tool.exporter.engine: own_cluster.py:make"
    finally:
        connection.close()
    assert connection.cluster.status.name == "closed"


def test_a_cluster_whose_last_host_left_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    for names, has_end in (({"a": {}}, True), ({}, False)):
        monkeypatch.setattr(time, "monotonic", lambda: now)
        cluster = Hosts([], **names)
        cluster.workers.clear()
        monkeypatch.setattr(time, "monotonic", lambda: now + 59)
        cluster.update()
        monkeypatch.setattr(time, "monotonic", lambda: now + 61)
        if has_end:
            with pytest.raises(ExporterError, match="it: the last host left 60 s ago") as caught:
                cluster.update()
            assert caught.value.exit_code is ExitCode.ENVIRONMENT
        else:
            cluster.update()  # a cluster that starts
