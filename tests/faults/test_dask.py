"""Run jobs on clusters of several hosts on this machine; the hosts are killed.

`python -m tests.faults.dask_campaign` is the long form.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError, StoppedByFailure
from exporter.records.record import Status
from tests.faults import campaign, dask_campaign
from tests.faults.dask_cluster import Cluster

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="it finds processes of hosts in /proc"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts, which no test ends."""
    cluster = Cluster(tmp_path_factory.mktemp("shared") / "cluster", 2)
    try:
        cluster.wait_for_hosts(2)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def remove_journal(cluster: Cluster) -> None:
    for name in ("journal", "pids"):
        (cluster.folder / name).unlink(missing_ok=True)


def count_built(cluster: Cluster) -> Counter[str]:
    return Counter((cluster.folder / "journal").read_text().split())


def wait_for_journal(cluster: Cluster, lines: int = 1) -> None:
    until = time.monotonic() + 30
    while not (cluster.folder / "journal").exists() or sum(count_built(cluster).values()) < lines:
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.campaign
def test_hosts_are_killed_and_no_cell_is_lost(tmp_path: Path) -> None:
    result = dask_campaign.run_round(tmp_path, seed=1, models=12, opsets=4, hosts=2, kills=1)
    campaign.print_counts(str(result))
    assert result.kills == 1


def test_jobs_run_isolated_and_each_once(tmp_path: Path, cluster: Cluster) -> None:
    project = tmp_path / "project"
    campaign.make_project(project, models=6, opsets=2)
    ways = {
        "m000/7/cpu": "segfault",
        "m001/8/cpu": "killed",
        "m002/7/cpu": "raises",
        "m003/7/cpu": "puts_a_huge_record",
        "m004/7/cpu": "puts_a_link_for_its_folder",
    }
    campaign.set_failures(project, ways)
    log = dask_campaign.run(project, cluster.address)
    statuses = {cell: record.status for cell, record in campaign.records(project).items()}
    expected = dict.fromkeys(campaign.cells(project), Status.PASS) | dict.fromkeys(
        ways, Status.CRASH
    )
    expected["m001/8/cpu"] = Status.KILLED
    # As on one machine, the second cell of a model whose folder is gone is lost with it.
    destroyed = {cell for cell in expected if cell.startswith(("m003", "m004"))}
    assert {c: s for c, s in statuses.items() if c not in destroyed} == {
        c: s for c, s in expected.items() if c not in destroyed
    }
    assert Status.CRASH in {statuses[cell] for cell in destroyed}
    (note,) = log.notes
    assert note.startswith("m001: 1 cell will run again alone: beside other workers, ")
    built = count_built(cluster)
    assert all(built[cell] == 1 for cell in expected if cell not in ways and cell not in destroyed)
    # A second run on the same hosts runs only the failures.
    campaign.set_failures(project, {})
    assert set(dask_campaign.run(project, cluster.address).reasons) >= set(ways)
    assert {r.status for r in campaign.records(project).values()} == {Status.PASS}


@pytest.mark.campaign
def test_a_job_that_ends_two_hosts_is_killed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    campaign.make_project(project, models=3, opsets=2, pause=0.1)
    campaign.set_failures(project, {"m001/8/cpu": "ends_the_host"})
    cluster = Cluster(tmp_path / "cluster", 3)
    try:
        cluster.wait_for_hosts(3)
        log = dask_campaign.run(project, cluster.address)
        ended = [name for name, process in cluster.hosts.items() if process.poll() is not None]
    finally:
        cluster.close()
    statuses = {cell: record.status for cell, record in campaign.records(project).items()}
    assert statuses.pop("m001/8/cpu") is Status.KILLED
    assert set(statuses.values()) == {Status.PASS}
    assert len(ended) == 2
    assert any("its unfinished jobs run again on other hosts" in note for note in log.notes)


@pytest.mark.campaign
def test_results_are_kept_if_the_scheduler_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    campaign.make_project(project, models=8, opsets=2, pause=0.2)
    cluster = Cluster(tmp_path / "cluster", 1)

    def end_scheduler() -> None:
        wait_for_journal(cluster, 6)
        os.killpg(cluster.scheduler.pid, signal.SIGKILL)

    killer = threading.Thread(target=end_scheduler)
    try:
        cluster.wait_for_hosts(1)
        killer.start()
        with pytest.raises(ExporterError, match=r"is lost, and .* did not finish") as error:
            dask_campaign.run(project, cluster.address)
        killer.join()
    finally:
        cluster.close()
    assert error.value.exit_code is ExitCode.ENVIRONMENT
    finished = campaign.records(project)
    assert 2 <= len(finished) < 16
    assert not set(campaign.run(project).reasons) & set(finished)  # here, on this machine
    assert {r.status for r in campaign.records(project).values()} == {Status.PASS}


@pytest.mark.campaign
def test_a_stopped_host_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.cluster.cluster_hosts._SILENCE", 5.0)
    project = tmp_path / "project"
    campaign.make_project(project, models=12, opsets=2, pause=0.2)
    cluster = Cluster(tmp_path / "cluster", 2)

    def stop_host() -> None:
        wait_for_journal(cluster, 4)
        os.killpg(cluster.hosts["host0"].pid, signal.SIGSTOP)

    stopper = threading.Thread(target=stop_host)
    try:
        cluster.wait_for_hosts(2)
        stopper.start()
        log = dask_campaign.run(project, cluster.address)
        stopper.join()
    finally:
        cluster.close()
    assert {r.status for r in campaign.records(project).values()} == {Status.PASS}
    assert set(campaign.records(project)) == set(campaign.cells(project))
    assert any("does not respond for 5 s; its" in note for note in log.notes)


@pytest.mark.campaign
def test_a_file_may_change_during_the_run(tmp_path: Path, cluster: Cluster) -> None:
    """The shell writes to such a file in `exporter export > export.log`."""
    project = tmp_path / "project"
    campaign.make_project(project, models=4, opsets=2, pause=0.1)
    ended = threading.Event()

    def write_log() -> None:
        with (project / "export.log").open("w") as file:
            while not ended.wait(0.001):
                file.write("line\n" * 100)
                file.flush()

    writer = threading.Thread(target=write_log)
    writer.start()
    try:
        log = dask_campaign.run(project, cluster.address)
    finally:
        ended.set()
        writer.join()
    assert {r.status for r in campaign.records(project).values()} == {Status.PASS}
    assert log.notes == []


@pytest.mark.campaign
def test_a_pickle_of_a_host_runs_no_code_here(tmp_path: Path) -> None:
    project = tmp_path / "project"
    campaign.make_project(project, models=3, opsets=1)
    cluster = Cluster(tmp_path / "cluster", 1)
    try:
        cluster.start_host("attacker", FAULTS_ATTACK=str(tmp_path / "attacked"))
        cluster.wait_for_hosts(2)
        log = dask_campaign.run(project, cluster.address)
    finally:
        cluster.close()
    assert {r.status for r in campaign.records(project).values()} == {Status.PASS}
    assert any(
        "is lost: TypeError: Could not serialize object of type Attack" in note
        for note in log.notes
    )
    assert not (tmp_path / "attacked").exists()


@pytest.mark.campaign
def test_an_interrupt_keeps_finished_cells_and_ends_the_jobs(
    tmp_path: Path, cluster: Cluster
) -> None:
    project = tmp_path / "project"
    campaign.make_project(project, models=4, opsets=3, pause=0.4)

    def interrupt() -> None:
        wait_for_journal(cluster, 2)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        dask_campaign.run(project, cluster.address)
    thread.join()
    finished = campaign.records(project)
    assert 2 <= len(finished) < 12
    assert {record.status for record in finished.values()} == {Status.PASS}
    assert campaign.find_running(cluster.folder) == []
    assert set(dask_campaign.run(project, cluster.address).reasons) == set(
        campaign.cells(project)
    ) - set(finished)


@pytest.mark.campaign
def test_a_red_cell_stops_the_run(tmp_path: Path, cluster: Cluster) -> None:
    project = tmp_path / "project"
    campaign.make_project(project, models=40, opsets=2, pause=0.2)
    campaign.set_failures(project, {"m000/7/cpu": "segfault"})
    with pytest.raises(StoppedByFailure, match="m000/7/cpu"):
        dask_campaign.run(project, cluster.address, fail_fast=True)
    results = campaign.records(project)
    assert results["m000/7/cpu"].status is Status.CRASH
    assert len(results) < 80
    assert campaign.find_running(cluster.folder) == []


@pytest.mark.campaign
def test_a_cluster_on_this_machine_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask

    monkeypatch.setenv("FAULTS_FOLDER", str(tmp_path))
    project = tmp_path / "project"
    campaign.make_project(project, models=3, opsets=2)
    campaign.set_failures(project, {"m001/8/cpu": "segfault"})
    with dask.config.set({"distributed.worker.preload": ["tests.faults.dask_host"]}):
        log = dask_campaign.run(project, "dask")
    statuses = {cell: record.status for cell, record in campaign.records(project).items()}
    assert statuses.pop("m001/8/cpu") is Status.CRASH
    assert set(statuses.values()) == {Status.PASS}
    assert len(log.models) == 3
    assert sorted(path.name for path in (project / "build").iterdir() if path.is_dir()) == [
        *(".dask", "m000", "m001", "m002")
    ]
    assert not list((project / "build/.dask").rglob("shape.json"))


@pytest.mark.campaign
def test_two_clients_use_one_cluster(tmp_path: Path, cluster: Cluster) -> None:
    projects = [tmp_path / name / "project" for name in ("first", "second")]
    for seed, project in enumerate(projects):
        campaign.make_project(project, models=4, opsets=2, pause=0.02, seed=seed)
    clients = [
        threading.Thread(target=dask_campaign.run, args=(project, cluster.address))
        for project in projects
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    for project in projects:
        records = campaign.records(project)
        assert set(records) == set(campaign.cells(project))
        assert {record.status for record in records.values()} == {Status.PASS}
    first, second = (campaign.records(project)["m000/7/cpu"] for project in projects)
    assert first.fingerprint != second.fingerprint
    assert set(count_built(cluster).values()) == {2}


@pytest.mark.campaign
def test_a_host_with_other_packages_is_refused(tmp_path: Path) -> None:
    """The host is as any other, but its state of torch differs."""
    project = tmp_path / "project"
    campaign.make_project(project, models=2, opsets=1)
    cluster = Cluster(tmp_path / "cluster", 0)
    try:
        cluster.start_host("host0", FAULTS_TORCH="1.0 of another build")
        cluster.wait_for_hosts(1)
        with pytest.raises(ExporterError) as error:
            dask_campaign.run(project, cluster.address)
        cluster.start_host("host1")
        cluster.wait_for_hosts(2)
        log = dask_campaign.run(project, cluster.address)
    finally:
        cluster.close()
    assert "cannot run jobs: torch: 1.0 of another build instead of" in str(error.value)
    assert "no host of the cluster can run jobs; install the packages" in str(error.value)
    assert {r.status for r in campaign.records(project).values()} == {Status.PASS}
    assert all("runs no jobs: torch: 1.0" in note for note in log.notes)


@pytest.mark.campaign
def test_a_host_with_an_older_release_is_refused_and_stays(tmp_path: Path) -> None:
    """Its package lacks the modules of this one, so their import would fail there."""
    project, old = tmp_path / "project", tmp_path / "old"
    (old / "exporter").mkdir(parents=True)
    (old / "exporter/__init__.py").touch()
    campaign.make_project(project, models=2, opsets=1)
    cluster = Cluster(tmp_path / "cluster", 0, preload="")
    try:
        cluster.start_host("host0", PYTHONPATH=str(old))
        cluster.wait_for_hosts(1)
        with pytest.raises(ExporterError) as error:
            dask_campaign.run(project, cluster.address)
        assert cluster.hosts["host0"].poll() is None
    finally:
        cluster.close()
    assert error.value.exit_code is ExitCode.ENVIRONMENT
    assert re.search(r"cannot run jobs: exporter: \S+ \w{12} instead of", str(error.value))
