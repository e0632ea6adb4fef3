"""Measure a Dask cluster on this machine: overhead, speed-up, many jobs, and a real cold run.

Input: a directory. Output: a `Section`. Jobs that sleep need no core, so one machine can show the
speed-up of several hosts. The cold run exports real models, and its hosts share the cores.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from benchmarks.figure import Figure, Section
from benchmarks.measure import ROOT, Failed, spend
from benchmarks.project import matrix_project, write_models
from exporter.cluster.dask_engine import DaskEngine
from exporter.manifest import Manifest, Project
from exporter.manifest.project_settings import read_project
from exporter.manifest.resolved.model import ModelSpec
from exporter.manifest.syntax.toml_file import ProblemCollector
from exporter.pipeline.decisions import BuildOptions
from exporter.pipeline.engine import Engine, LocalEngine
from exporter.pipeline.supervisor import BuildObserver
from exporter.planning.plan import Shard, make_plan, select_shard
from exporter.processes import ForkServerStarter, make_worker_environment
from exporter.program import run_plan

CONTROL_FLOW = (
    *("loop_traced", "loop_scripted", "indexed_assignment", "indexed_assignment_ellipsis"),
    *("branch_captured", "loop_mixed", "list_building"),
)
OPSETS, SMALL_MODELS = "18..25", 18
_FORCE = BuildOptions(force=True)
_SLEEP = 400  # milliseconds
_WORKERS = (1, 2, 4, 8)


def measured(place: Path, *, quick: bool) -> Section:
    """Measure all four; `quick`: few jobs and no cold run."""
    figures = [*_measure_speed_up(place, 8 if quick else 64, _WORKERS[:2] if quick else _WORKERS)]
    figures += _measure_shards(place, 8 if quick else 64)
    figures.append(_measure_many(place, 50 if quick else 10_000))
    if not quick:
        figures.append(_measure_cold(place))
    about = (
        f"Jobs that sleep for {_SLEEP} ms in worker processes of hosts with one job each; jobs "
        "without a process; and real models, from nothing. Hosts are processes of this machine."
    )
    return Section(name="dask", about=about, figures=figures)


def _measure_speed_up(place: Path, jobs: int, counts: Sequence[int]) -> Iterator[Figure]:
    manifest = _make_manifest(place / "sleep", [_SLEEP] * jobs)
    seconds = {}
    for workers in counts:
        with _start_cluster(place / f"hosts{workers}", workers, "sleep") as address:
            _run(manifest, address)  # starts the fork servers and copies the project
            seconds[workers] = _spend(lambda at=address: _run(manifest, at))
    ideal = jobs * _SLEEP / 1000
    overhead = (seconds[1] - ideal) / jobs * 1000
    yield Figure(what="overhead of a job on one host", measured=f"{overhead:.0f} ms")
    local = _spend(lambda: _run_locally(manifest, 1))
    overhead = (local - ideal) / jobs * 1000
    yield Figure(what="overhead of a job of the local engine", measured=f"{overhead:.0f} ms")
    for workers in counts[1:]:
        share = seconds[1] / seconds[workers]
        measured = f"{share:.1f} times ({seconds[workers]:.1f} s and {seconds[1]:.1f} s)"
        yield Figure(what=f"{jobs} jobs on {workers} hosts, compared with one", measured=measured)


def _measure_shards(place: Path, jobs: int) -> Iterator[Figure]:
    """Compare four hosts with four shards; every eighth job is four times as long."""
    lengths = [_SLEEP * 4 if number % 8 == 0 else _SLEEP for number in range(jobs)]
    manifest = _make_manifest(place / "mixed", lengths)
    with _start_cluster(place / "mixed-hosts", 4, "sleep") as address:
        _run(manifest, address)
        cluster = _spend(lambda: _run(manifest, address))
    shards = []
    for index in range(1, 5):  # one after the other: each is a machine of its own
        shard = Shard(index=index, count=4)
        shards.append(_spend(lambda of=shard: _run_locally(manifest, 1, of)))
    measured = f"{cluster:.1f} s and {max(shards):.1f} s (the longest shard)"
    what = f"{jobs} jobs, each eighth four times as long: four hosts, and four shards"
    yield Figure(what=what, measured=measured)


def _measure_many(place: Path, jobs: int) -> Figure:
    manifest = _make_manifest(place / "many", [0] * jobs)
    with _start_cluster(place / "many-hosts", 4, "none") as address:
        seconds = _spend(lambda: _run(manifest, address))
    measured = f"{seconds:.0f} s, {seconds / jobs * 1000:.1f} ms for each"
    return Figure(what=f"{jobs} jobs without a process on four hosts", measured=measured)


def _measure_cold(place: Path) -> Figure:
    root = place / "cold"
    matrix_project(root, CONTROL_FLOW, OPSETS)
    write_models(root, [f"net{number}" for number in range(SMALL_MODELS)], OPSETS)
    export = (sys.executable, "-m", "exporter", "export", "--force", "--no-store")
    local = spend((*export, "--jobs", "2"), root)
    shutil.rmtree(root / "build")  # the times of an earlier run change the order of jobs
    with _start_cluster(place / "cold-hosts", 2, "") as address:
        cluster = spend((*export, "--engine", address), root)
    cells = (len(CONTROL_FLOW) + SMALL_MODELS) * 8
    for spent in (local, cluster):
        if f"{cells} cells" not in spent.output:
            raise Failed(spent.output[-3000:])
    share = local.wall / cluster.wall
    measured = f"{share:.2f} times ({cluster.wall:.0f} s and {local.wall:.0f} s)"
    what = f"a cold run of {cells} cells on two hosts, compared with two local workers"
    return Figure(what=what, measured=measured)


def _make_manifest(root: Path, milliseconds: Sequence[int]) -> Manifest:
    """Return a project whose models sleep; their seeds are the milliseconds."""
    root.mkdir(parents=True)
    project = _read_project(root)
    (first,) = _load_models(root)
    models = (
        first.model_copy(update={"id": f"net{number:05}", "seed": length})
        for number, length in enumerate(milliseconds)
    )
    return Manifest(project=project, models=tuple(models))


def _read_project(root: Path) -> Project:
    return read_project(root, ProblemCollector()).project


def _load_models(root: Path) -> tuple[ModelSpec, ...]:
    from exporter.manifest import load_project

    write_models(root, ["net"], "18")
    return load_project(root).models


def _run(manifest: Manifest, address: str) -> None:
    project = manifest.project.model_copy(update={"engine": address})
    _build(manifest, DaskEngine(project, os.environ, BuildObserver().on_note, 1))


def _run_locally(manifest: Manifest, workers: int, shard: Shard | None = None) -> None:
    script = str(ROOT / "benchmarks/sleeping_worker.py")
    command = [sys.executable, "-m", "exporter.worker.fork_server", script]
    starter = ForkServerStarter(make_worker_environment(os.environ), command)
    _build(manifest, LocalEngine(workers, starter), shard)


def _build(manifest: Manifest, engine: Engine, shard: Shard | None = None) -> None:
    plan = make_plan(manifest)
    plan = select_shard(plan, shard) if shard else plan
    results = run_plan(manifest, plan, engine, BuildObserver(), date(2026, 1, 1), _FORCE)
    if len(results.run.records) < len(plan.to_run):
        raise Failed(f"{len(results.run.records)} results of {len(plan.to_run)} cells")


def _spend(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


@contextmanager
def _start_cluster(folder: Path, hosts: int, jobs: str) -> Iterator[str]:
    """Start a scheduler and hosts with one job each; yield the address."""
    folder.mkdir()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    module = "distributed.cli.dask_"
    common = ["--host", "127.0.0.1", "--no-dashboard"]
    commands = [[f"{module}scheduler", *common, "--port", str(port)]]
    for number in range(hosts):
        host = [f"{module}worker", address, *common, "--nthreads", "1", "--no-nanny"]
        host += ["--local-directory", str(folder / f"host{number}")]
        commands.append([*host, *(["--preload", "benchmarks.dask_host"] if jobs else [])])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BENCH_JOBS": jobs}
    with (folder / "log").open("wb") as log:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", *command],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for command in commands
        ]
    try:
        _wait_for_hosts(address, hosts)
        yield address
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_hosts(address: str, hosts: int) -> None:
    from distributed import Client

    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(hosts, timeout=60)
