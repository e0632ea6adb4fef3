"""The engine handles all ways in which a worker can end."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from exporter.jobs import Announcement, Job, JobFolder, OpsetJob
from exporter.manifest import Device
from exporter.pipeline.engine import (
    ExitKind,
    JobResult,
    LocalEngine,
    Task,
    end_jobs,
)
from exporter.processes import (
    ForkServerStarter,
    ProcessStarter,
    make_worker_environment,
)
from exporter.records.record import Record
from tests.unit.factory import DYNAMO, make_spec

PRELUDE = """
import hashlib, json, os, pathlib, signal, subprocess, sys, time
job = json.loads(pathlib.Path(sys.argv[-1]).read_text())
folder = pathlib.Path(job["folder"])
model = job["spec"]["id"]

def cell(opset):
    return {"model": model, "opset": opset, "device": "cpu"}

def put(path, value, seal=False):
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_suffix(".fresh")
    text = json.dumps(value)
    digest = hashlib.sha256(text[1:].encode()).hexdigest()
    fresh.write_text(f'{{\\n  "sha256": "{digest}",{text[1:]}' if seal else text)
    fresh.rename(path)

def announce(*opsets, stage="convert"):
    cells = [cell(opset) for opset in opsets]
    put(folder / "at_work.json", {"stage": stage, "cells": cells, "log": f"{model}/logs/model.log"})

def record(opset):
    put(folder / "records" / f"{opset}.cpu.json", {"cell": cell(opset), "status": "pass"}, True)
"""


#: Secrets in the environment of CI jobs.
TOKENS = (
    "GITHUB_TOKEN",
    "ACTIONS_RUNTIME_TOKEN",
    "CI_JOB_TOKEN",
    "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
)
#: The kind of starter in the current test.
KIND = ["spawned"]


@pytest.fixture(autouse=True)
def set_starter_kind(request: pytest.FixtureRequest) -> str:
    """Run a test with workers of a fork server, unless it names a kind."""
    usual = "warm" if sys.platform == "linux" else "spawned"
    KIND[0] = getattr(request, "param", usual)
    return KIND[0]


#: Runs a test with each starter, whose processes end in other ways.
with_each_starter = pytest.mark.parametrize(
    "set_starter_kind",
    [
        "spawned",
        pytest.param(
            "warm", marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")
        ),
    ],
    indirect=True,
)


class EventLog:
    """`JobEvents` that stores all events."""

    def __init__(
        self, choose_next: Callable[[JobResult], Task | None] = lambda result: None
    ) -> None:
        self.results: list[JobResult] = []
        self.records: list[str] = []
        self.announcements: list[Announcement] = []
        self._choose_next = choose_next

    def on_announcement(self, announcement: Announcement) -> None:
        self.announcements.append(announcement)

    def on_record(self, record: Record) -> None:
        self.records.append(str(record.cell))

    def run(self, engine: LocalEngine, tasks: Iterable[Task]) -> None:
        """Run the tasks and those that `choose_next` adds."""
        queue = deque(tasks)
        with closing(engine.run(queue, self)) as results:
            for result in results:
                self.results.append(result)
                if task := self._choose_next(result):
                    queue.appendleft(task)


def make_task(tmp_path: Path, *, model: str = "tiny", seconds: float = 30.0) -> Task:
    spec = make_spec(model, timeout=seconds)
    folder = tmp_path / model
    folder.mkdir(exist_ok=True)
    devices = (Device(name="cpu", runtime="onnxruntime"),)
    job = Job(
        spec=spec,
        root=str(tmp_path),
        build=str(tmp_path),
        folder=str(folder),
        opsets=tuple(OpsetJob(opset=opset, route=DYNAMO, devices=devices) for opset in spec.opsets),
    )
    return Task(job=job, seconds=seconds)


def make_engine(tmp_path: Path, body: str, *, workers: int = 2) -> LocalEngine:
    worker = tmp_path / "worker.py"
    worker.write_text(PRELUDE + textwrap.dedent(body))
    return LocalEngine(workers, make_starter(worker))


def make_starter(worker: Path) -> ProcessStarter:
    environment = make_worker_environment({**os.environ, **dict.fromkeys(TOKENS, "secret")})
    if KIND == ["warm"]:
        return ForkServerStarter(
            environment, [sys.executable, "-m", "exporter.worker.fork_server", str(worker)]
        )
    return ProcessStarter(environment, [sys.executable, "-S", str(worker)])


def run_one(tmp_path: Path, body: str, *, seconds: float = 30.0) -> tuple[JobResult, EventLog]:
    events = EventLog()
    events.run(make_engine(tmp_path, body), [make_task(tmp_path, seconds=seconds)])
    [result] = events.results
    return result, events


def is_alive(pid: int) -> bool:
    """Return True if the process exists some seconds after a kill."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True


@with_each_starter
def test_a_finished_worker_reports_its_announcements_and_records(tmp_path: Path) -> None:
    body = """
        for opset in (17, 18):
            announce(opset)
            record(opset)
            time.sleep(0.25)
    """
    result, events = run_one(tmp_path, body)
    assert (result.exit_kind, result.code) == (ExitKind.EXITED, 0)
    assert [a.cells[0].opset for a in events.announcements] == [17, 18]
    # The record of the last cell counts when the worker ends.
    assert events.records == ["tiny/17/cpu"]


def test_a_job_that_must_run_alone_waits_and_lets_the_others_wait(tmp_path: Path) -> None:
    tasks = [make_task(tmp_path, model=model) for model in ("a", "b", "c")]
    tasks[1] = replace(tasks[1], is_alone=True)
    body = """
        name = folder.name
        folder.with_suffix(".runs").touch()
        time.sleep(0.5)
        neighbors = [path.stem for path in folder.parent.glob("*.runs") if path.stem != name]
        folder.with_suffix(".neighbors").write_text(",".join(neighbors))
        folder.with_suffix(".runs").unlink()
    """
    events = EventLog()
    events.run(make_engine(tmp_path, body), tasks)
    assert [result.job.spec.id for result in events.results] == ["a", "b", "c"]
    assert [path.read_text() for path in sorted(tmp_path.glob("*.neighbors"))] == ["", "", ""]
    assert not any(result.has_company for result in events.results)


def test_jobs_that_run_together_report_it(tmp_path: Path) -> None:
    events = EventLog()
    tasks = [make_task(tmp_path, model=model) for model in ("a", "b")]
    events.run(make_engine(tmp_path, "time.sleep(0.5)"), tasks)
    assert [result.has_company for result in events.results] == [True, True]


def test_the_next_job_starts_before_the_end_of_the_last_one_is_handled(tmp_path: Path) -> None:
    def wait_for_next(result: JobResult) -> None:
        deadline = time.monotonic() + 20
        while not (tmp_path / "b.began").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        ends.append((result.job.spec.id, (tmp_path / "b.began").exists()))

    ends: list[tuple[str, bool]] = []
    jobs = [make_task(tmp_path, model=model) for model in ("a", "b")]
    body = 'folder.with_suffix(".began").touch()'
    EventLog(wait_for_next).run(make_engine(tmp_path, body, workers=1), jobs)
    assert ends == [("a", True), ("b", True)]


@with_each_starter
def test_an_early_exit_with_code_0_is_reported_with_the_announced_cells(tmp_path: Path) -> None:
    result, _ = run_one(tmp_path, "announce(17)\nos._exit(0)")
    assert (result.exit_kind, result.code) == (ExitKind.EXITED, 0)
    assert result.last_announcement is not None
    assert [str(cell) for cell in result.last_announcement.cells] == ["tiny/17/cpu"]


@with_each_starter
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_signal_is_not_an_exit(tmp_path: Path, number: signal.Signals) -> None:
    result, _ = run_one(tmp_path, f"announce(17)\nos.kill(os.getpid(), {int(number)})")
    assert (result.exit_kind, result.code) == (ExitKind.SIGNAL, number)


def test_the_announcement_of_an_earlier_worker_is_ignored(tmp_path: Path) -> None:
    first = make_task(tmp_path)
    JobFolder(Path(first.job.folder)).announcement.write_text(
        '{"stage": "convert", "cells": [], "log": "old"}'
    )
    result, _ = run_one(tmp_path, "sys.exit(4)")
    assert result.last_announcement is None
    assert result.code == 4


@with_each_starter
def test_a_timeout_ends_the_process_group_even_if_it_ignores_sigterm(tmp_path: Path) -> None:
    body = """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        put(folder / "pids.json", [os.getpid(), child.pid])
        announce(17)
        time.sleep(60)
    """
    started = time.monotonic()
    result, _ = run_one(tmp_path, body, seconds=1.0)
    assert result.exit_kind is ExitKind.SILENCE
    assert time.monotonic() - started < 20
    worker, child = map(int, (tmp_path / "tiny/pids.json").read_text().strip("[]").split(","))
    assert not is_alive(worker)
    assert not is_alive(child)


SPIN = """
def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count wall time")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("spin(60)", ExitKind.TIMEOUT),
        (
            "command = [sys.executable, '-Sc', 'while True: pass']\n"
            + "child = subprocess.Popen(command, start_new_session=True)\n"
            + "put(folder / 'pids.json', [child.pid])\n"
            + "child.wait()",
            ExitKind.TIMEOUT,
        ),
        # The processes beside it take most of the time.
        ("for _ in range(10): spin(0.05); time.sleep(0.3)", ExitKind.EXITED),
        ("for opset in range(6): announce(opset); time.sleep(0.6)", ExitKind.EXITED),
        ("while True: time.sleep(0.05)", ExitKind.SILENCE),
    ],
    ids=["busy", "busy-child", "loaded-machine", "slow-progress", "waiting"],
)
def test_the_time_limit_counts_cpu_time(tmp_path: Path, body: str, expected: ExitKind) -> None:
    result, _ = run_one(tmp_path, SPIN + body, seconds=2.0)
    assert result.exit_kind is expected
    assert (result.seconds > 2.0) is (expected is ExitKind.TIMEOUT)
    if (pids := tmp_path / "tiny/pids.json").exists():  # of another session
        assert not is_alive(int(pids.read_text().strip("[]")))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count wall time")
def test_a_job_without_end_has_a_wall_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.processes.lifetime._WALL_FACTOR", 2.0)
    body = "while True: announce(time.monotonic_ns()); time.sleep(0.1)"
    result, _ = run_one(tmp_path, body, seconds=1.0)
    assert result.exit_kind is ExitKind.TIMEOUT


@with_each_starter
def test_children_of_an_exited_worker_are_killed(tmp_path: Path) -> None:
    body = """
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        put(folder / "pids.json", [child.pid])
    """
    run_one(tmp_path, body)
    assert not is_alive(int((tmp_path / "tiny/pids.json").read_text().strip("[]")))


def test_endless_output_goes_to_the_log(tmp_path: Path) -> None:
    body = """
        announce(17)
        while True:
            os.write(1, b"noise " * 1000)
            os.write(2, b"noise " * 1000)
    """
    result, _ = run_one(tmp_path, body, seconds=1.0)
    assert result.exit_kind is ExitKind.TIMEOUT
    assert (tmp_path / "tiny/logs/model.log").read_bytes().startswith(b"noise ")


def test_a_large_log_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No number of writes is so near to the limit that the last line exceeds it.
    monkeypatch.setattr("exporter.pipeline.engine._MAX_LOG_SIZE", 100_000)
    body = """
        for _ in range(40):
            os.write(1, b"x" * 9_000)
            time.sleep(0.02)
        while os.fstat(1).st_size > 100_000:
            time.sleep(0.02)
        os.write(1, b"the last line")
    """
    run_one(tmp_path, body)
    log = (tmp_path / "tiny/logs/model.log").read_bytes()
    assert len(log) < 300_000
    assert log.endswith(b"the last line")


@with_each_starter
def test_a_worker_has_no_secrets_and_no_terminal(tmp_path: Path) -> None:
    body = """
        put(folder / "seen.json", [dict(os.environ), sys.stdin.read(), os.getpgrp() == os.getpid()])
    """
    run_one(tmp_path, body)
    seen = (tmp_path / "tiny/seen.json").read_text()
    assert "secret" not in seen
    assert '"OMP_NUM_THREADS": "1"' in seen
    assert seen.endswith('"", true]')


def test_the_number_of_workers_is_limited(tmp_path: Path) -> None:
    body = """
        put(folder / "span.json", [time.monotonic(), 0])
        start = time.monotonic()
        time.sleep(0.3)
        put(folder / "span.json", [start, time.monotonic()])
    """
    events = EventLog()
    tasks = [make_task(tmp_path, model=f"m{index}") for index in range(3)]
    events.run(make_engine(tmp_path, body, workers=1), tasks)
    spans = sorted(
        tuple(map(float, path.read_text().strip("[]").split(",")))
        for path in tmp_path.glob("m*/span.json")
    )
    assert len(spans) == len(events.results) == 3
    assert all(one[1] <= two[0] for one, two in pairwise(spans))


def test_the_job_that_the_caller_adds_runs_next(tmp_path: Path) -> None:
    again = make_task(tmp_path)
    events = EventLog(lambda result: again if len(events.results) < 3 else None)
    events.run(make_engine(tmp_path, "sys.exit(7)"), [again])
    assert [result.code for result in events.results] == [7, 7, 7]


@with_each_starter
def test_ctrl_c_ends_all_processes_and_reports_each_job(tmp_path: Path) -> None:
    body = """
        put(folder / "pids.json", [os.getpid()])
        announce(17)
        record(17)
        announce(18)
        time.sleep(60)
    """
    events = EventLog()

    def interrupt() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and len(list(tmp_path.glob("m*/records/*.json"))) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        events.run(
            make_engine(tmp_path, body), [make_task(tmp_path, model=f"m{n}") for n in range(3)]
        )
    thread.join()
    assert [result.exit_kind for result in events.results] == [ExitKind.INTERRUPTED] * 2
    pids = [int(path.read_text().strip("[]")) for path in tmp_path.glob("m*/pids.json")]
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)


def test_ctrl_c_while_a_result_is_handled_ends_the_running_jobs(tmp_path: Path) -> None:
    body = 'time.sleep(0 if model == "m0" else 300)'
    queue = deque(make_task(tmp_path, model=f"m{number}") for number in range(3))
    results = make_engine(tmp_path, body).run(queue, EventLog())
    assert next(results).exit_kind is ExitKind.EXITED
    ended = list(end_jobs(results, KeyboardInterrupt()))
    assert [each.exit_kind for each in ended] == [ExitKind.INTERRUPTED] * 2


def test_a_second_ctrl_c_skips_the_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.pipeline.engine._GRACE_PERIOD", 300.0)
    body = """
        signal.signal(signal.SIGTERM, lambda *_: put(folder / "signaled.json", []))
        put(folder / "pids.json", [os.getpid()])
        announce(17)
        while True:
            time.sleep(1)
    """
    events = EventLog()

    def wait_for(name: str) -> None:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and len(list(tmp_path.glob(f"m*/{name}"))) < 2:
            time.sleep(0.05)

    def interrupt() -> None:
        wait_for("pids.json")
        os.kill(os.getpid(), signal.SIGINT)
        wait_for("signaled.json")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    started = time.monotonic()
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        events.run(
            make_engine(tmp_path, body), [make_task(tmp_path, model=f"m{n}") for n in range(2)]
        )
    thread.join()
    assert time.monotonic() - started < 250
    assert len(list(tmp_path.glob("m*/signaled.json"))) == 2
    assert [result.exit_kind for result in events.results] == [ExitKind.INTERRUPTED] * 2
    pids = [int(path.read_text().strip("[]")) for path in tmp_path.glob("m*/pids.json")]
    assert not any(is_alive(pid) for pid in pids)


def test_an_error_in_an_event_ends_all_processes(tmp_path: Path) -> None:
    body = """
        put(folder / "pids.json", [os.getpid()])
        if model == "m0":
            while not (folder.parent / "m1/pids.json").exists():
                time.sleep(0.01)
            sys.exit(0)
        time.sleep(60)
    """

    def fail(result: JobResult) -> Task | None:
        raise ZeroDivisionError

    tasks = [make_task(tmp_path, model=f"m{n}") for n in range(2)]
    with pytest.raises(ZeroDivisionError):
        EventLog(fail).run(make_engine(tmp_path, body), tasks)
    assert not is_alive(int((tmp_path / "m1/pids.json").read_text().strip("[]")))
