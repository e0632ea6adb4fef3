"""Kill hosts of a cluster at random during a build: `python -m tests.faults.dask_campaign`."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from exporter.cluster.dask_engine import DaskEngine
from exporter.pipeline.decisions import BuildOptions
from exporter.planning.plan import make_plan
from exporter.program import run_plan
from exporter.records.record import Status
from tests.faults import campaign
from tests.faults.dask_cluster import Cluster
from tests.unit.pipeline.builders import BuildLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The counts of one run."""

    cells: int
    kills: int
    again: int
    """Cells that were built more than once."""
    killed: int
    """Cells whose job lost two hosts. They pass in the next run."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.cells} cells, {self.kills} hosts killed, {self.again} cells built again, "
            f"{self.killed} of jobs that lost two hosts, {self.seconds:.1f} s"
        )


def run(root: Path, address: str, *, fail_fast: bool = False) -> BuildLog:
    """Build the project of `campaign.make_project` on a cluster."""
    manifest = campaign.read_manifest(root)
    log = BuildLog()
    project = manifest.project.model_copy(update={"engine": address})
    engine = DaskEngine(project, {}, log.on_note, 1)
    run_plan(
        manifest,
        make_plan(manifest),
        engine,
        log,
        BuildOptions(fail_fast=fail_fast),
    )
    return log


def run_round(
    folder: Path, *, seed: int, models: int = 100, opsets: int = 5, hosts: int = 4, kills: int = 3
) -> Round:
    """Build a project while hosts are killed, and verify each cell."""
    project, draw = folder / "project", random.Random(seed)
    campaign.make_project(project, models=models, opsets=opsets, pause=0.05, seed=seed)
    cluster = Cluster(folder / "cluster", hosts, threads=2)
    ended = threading.Event()
    count = 0

    def kill_hosts() -> None:
        nonlocal count
        for _ in range(kills):
            while not ended.is_set() and not (cluster.folder / "journal").exists():
                time.sleep(0.05)
            if ended.wait(draw.uniform(0.3, 1.5)):
                return
            name = draw.choice(sorted(cluster.hosts))
            cluster.kill(name)
            count += 1
            cluster.start_host(name)

    killer = threading.Thread(target=kill_hosts)
    try:
        cluster.wait_for_hosts(hosts)
        killer.start()
        started = time.monotonic()
        log = run(project, cluster.address)
        seconds = time.monotonic() - started
    finally:
        ended.set()
        killer.join()
        cluster.close()
    killed = verify_killed(folder, log)
    cells = campaign.cells(project)
    built = Counter((cluster.folder / "journal").read_text().split())
    results = campaign.contents(project)
    assert set(results) == set(cells), "a cell has no result"
    for cell, (record, content, _) in results.items():
        model, opset, _device = cell.split("/")
        assert record.status is Status.PASS, (cell, record.message)
        assert content == f"the file of {model} at {opset}", cell
    assert set(built) == set(cells), "a cell passes that no host built"
    again = [cell for cell, times in built.items() if times > 1]
    notes = [note for note in log.notes if "run again" in note]
    assert notes or killed or not again, "cells were built again without a message"
    return Round(cells=len(cells), kills=count, again=len(again), killed=killed, seconds=seconds)


def verify_killed(folder: Path, log: BuildLog) -> int:
    """Run cells again whose job lost two hosts; return their number."""
    project = folder / "project"
    bad = [record for record in log.records if record.status is not Status.PASS]
    if not bad:
        return 0
    assert {record.status for record in bad} == {Status.KILLED}, [r.message for r in bad]
    cluster = Cluster(folder / "next", 1)
    try:
        cluster.wait_for_hosts(1)
        assert set(run(project, cluster.address).reasons) == {str(r.cell) for r in bad}
    finally:
        cluster.close()
    journal = folder / "cluster/journal"
    journal.write_text(journal.read_text() + (cluster.folder / "journal").read_text())
    return len(bad)


def main(rounds: int) -> None:
    """Run some rounds and print their counts."""
    total: Counter[str] = Counter()
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="dask-campaign-") as folder:
            result = run_round(Path(folder), seed=number)
        campaign.print_counts(f"round {number + 1}: {result}")
        total.update(
            cells=result.cells, kills=result.kills, again=result.again, killed=result.killed
        )
    campaign.print_counts(
        f"{rounds} rounds, {total['cells']} cells, {total['kills']} hosts killed, "
        f"{total['again']} cells built again, {total['killed']} of jobs that lost two hosts; "
        "none is missing, wrong or uncounted"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
