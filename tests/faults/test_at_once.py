"""Run two programs on one project, and kill programs while they write or remove files.

The session `faults` is the long form, which sets `FAULTS=long`. The counts are printed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.core.errors import ExporterError
from exporter.records.record import Status
from tests.faults import campaign
from tests.integration.project import read_files, run_exporter, write_project
from tests.integration.results import make_green_project, write_results

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")

IS_LONG = os.environ.get("FAULTS") == "long"
KILLS = 40 if IS_LONG else 3
#: A command that sleeps before each change of the disk and announces the first one.
SLOW = """
import os, sys, time

def slow(function):
    def later(*arguments, **options):
        sys.stdout.write("at work\\n")
        sys.stdout.flush()
        time.sleep(0.02)
        return function(*arguments, **options)
    return later

os.unlink, os.replace, os.rmdir = slow(os.unlink), slow(os.replace), slow(os.rmdir)
from exporter.cli import main
main()
"""


def kill_at_work(root: Path, command: str, seconds: float) -> bool:
    """Kill a command after its first change of the disk. Return True if it was running."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, command],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(campaign.REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        was_at_work = process.poll() is None
        process.kill()
    return was_at_work


def wait_for(process: subprocess.Popen[bytes], root: Path) -> None:
    until = time.monotonic() + 60
    while process.poll() is None and not campaign.count_built(root):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert process.poll() is None


MANIFEST = """format = 1
[defaults]
source = "net.py:Net"
inputs = [{ name = "x", shape = ["batch", 4] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = [7, 8]
"""


def promise(root: Path, models: int) -> None:
    """Write a manifest for `exporter gc` with some of the models at two opsets."""
    write_project(root, {"net.py": "class Net: ...\n"})
    entries = "".join(f"[models.m{index:03}]\n" for index in range(models))
    (root / "manifests/net.toml").write_text(MANIFEST + entries)


def test_a_second_run_and_gc_respect_the_lock(tmp_path: Path) -> None:
    campaign.make_project(tmp_path, models=8, opsets=5, pause=0.1)
    promise(tmp_path, 1)
    assert run_exporter(tmp_path, "list").returncode == 0  # its server starts before the run
    first = campaign.start(tmp_path)
    wait_for(first, tmp_path)
    with pytest.raises(ExporterError, match="another run has locked the folder"):
        campaign.run(tmp_path)
    swept = run_exporter(tmp_path, "gc")
    assert swept.returncode == 4
    assert "another run has locked the folder" in swept.stderr
    others = [campaign.start(tmp_path) for _ in range(3)]
    assert {other.wait(60) for other in others} <= {0, 1}
    assert first.wait(60) == 0
    assert {record.status for record in campaign.records(tmp_path).values()} == {Status.PASS}
    assert set(campaign.count_built(tmp_path).values()) == {1}  # no cell was built twice
    assert campaign.run(tmp_path).reasons == {}
    assert campaign.find_running(tmp_path) == []
    assert "Traceback" not in (tmp_path / "errors.log").read_text()


def test_a_killed_gc_leaves_only_complete_results(tmp_path: Path) -> None:
    campaign.make_project(tmp_path, models=12, opsets=4)
    campaign.run(tmp_path)
    expected_contents = campaign.contents(tmp_path)
    promise(tmp_path, 3)
    promised = {f"m{model:03}/{opset}/cpu" for model in range(3) for opset in (7, 8)}
    draw = random.Random(5)
    kills = 0
    for _ in range(KILLS):
        kills += kill_at_work(tmp_path, "gc", draw.random() * 0.6)
        assert_promised(tmp_path, promised)
        if IS_LONG:
            campaign.run(tmp_path)
            assert campaign.contents(tmp_path) == expected_contents
    assert run_exporter(tmp_path, "gc").returncode == 0
    assert run_exporter(tmp_path, "gc").stdout == "nothing to remove\n"
    assert_promised(tmp_path, promised)
    records = (tmp_path / "build").glob("m*/records/*.json")
    left = {f"{path.parents[1].name}/{path.name.replace('.', '/', 1)}" for path in records}
    assert {name.removesuffix(".json") for name in left} == promised
    # Only the removed cells are built again.
    reasons = campaign.run(tmp_path).reasons
    assert set(reasons) == set(expected_contents) - promised
    assert campaign.contents(tmp_path) == expected_contents
    campaign.print_counts(f"gc killed {kills} times at work")
    assert kills


def assert_promised(root: Path, promised: set[str]) -> None:
    """Check that all cells of the manifests exist with their files."""
    intact = ArtifactVerifier(root / "build")
    for cell, (record, *_) in campaign.contents_of(root, promised).items():
        assert record.artifact is not None
        assert intact.find_problem(record.artifact) == "", cell


@pytest.mark.campaign
def test_a_killed_report_leaves_only_complete_files(tmp_path: Path) -> None:
    root = make_green_project(tmp_path / "project")
    draw = random.Random(5)
    assert run_exporter(root, "report").returncode == 0
    green = read_files(root / "reports")
    write_results(root, Status.FAIL)
    assert run_exporter(root, "report").returncode == 0
    red = read_files(root / "reports")
    assert green.keys() == red.keys()
    assert green != red
    kills = 0
    for turn in range(KILLS):
        status, expected = (Status.FAIL, red) if turn % 2 else (Status.PASS, green)
        write_results(root, status)
        kills += kill_at_work(root, "report", draw.random() * 0.2)
        for name, text in read_files(root / "reports").items():
            if not name.endswith(".fresh"):
                assert text in (green[name], red[name]), name
        assert run_exporter(root, "report").returncode == 0
        assert read_files(root / "reports") == expected  # incomplete files were removed
    campaign.print_counts(f"report killed {kills} times at work")
    assert kills


def test_temporary_files_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    campaign.make_project(tmp_path, models=2, opsets=2)
    campaign.run(tmp_path)
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    left = tmp_path / f"build/.results.json.{ended.pid}.fresh"
    at_work = tmp_path / f"build/.results.json.{os.getppid()}.fresh"
    foreign = tmp_path / "build/.mine.fresh"
    for path in (left, at_work, foreign):
        path.write_text("half of")
    shutil.rmtree(tmp_path / "build/m001")
    campaign.run(tmp_path)
    assert not left.exists()
    assert foreign.exists()
    assert at_work.exists()
