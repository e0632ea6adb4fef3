"""Full or read-only disks and clocks that go back lose no result, and all errors are reported.

If nothing can be mounted, a limit of the file size replaces the full disk, and a file with the path
of a folder replaces the read-only folder.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.records.record import Status
from tests.faults import campaign
from tests.faults.disks import read_only, small_disk
from tests.integration.project import (
    format_entry,
    make_project,
    read_files,
    run_exporter,
    write_project,
)
from tests.integration.results import make_green_project, write_results

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux forks")

IS_LONG = os.environ.get("FAULTS") == "long"


@pytest.mark.parametrize("seed", range(12 if IS_LONG else 1))
def test_a_build_folder_on_a_full_disk(tmp_path: Path, seed: int) -> None:
    size = random.Random(seed).randrange(200, 900)
    campaign.make_project(tmp_path, models=20, opsets=5)
    with small_disk(tmp_path / "build", size) as disk:
        with pytest.raises(ExporterError, match="No space left on device") as full:
            campaign.run(tmp_path)
        assert full.value.exit_code is ExitCode.ENVIRONMENT
        assert str(disk.path) in str(full.value)
        assert campaign.find_running(tmp_path) == []
        built = campaign.count_built(tmp_path)
        assert built  # the disk was not full from the start
        disk.grow()
        log = campaign.run(tmp_path)
        contents = campaign.contents(tmp_path)
        assert set(contents) == set(campaign.cells(tmp_path))
        assert {record.status for record, *_ in contents.values()} == {Status.PASS}
        assert campaign.run(tmp_path).reasons == {}
    again = sum(campaign.count_built(tmp_path).values()) - len(contents)
    # Finished cells were kept, except those in progress when the disk was full.
    assert again <= campaign.JOBS * 5
    campaign.print_counts(
        f"{size} KiB: {len(built)} of {len(contents)} cells built, {again} built again"
    )
    assert len(log.reasons) <= len(contents) - len(built) + again


MODELS = """
from torch import nn


class Big(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 200_000), nn.Linear(200_000, 3)

    def forward(self, x):
        return self.down(self.up(x))
"""
MANIFEST = f"format = 1\n{format_entry('big', 'models.py:Big')}"


@pytest.mark.campaign
def test_a_file_for_a_full_disk_is_built_after_space_was_freed(tmp_path: Path) -> None:
    write_project(tmp_path, {"models.py": MODELS, "net.toml": MANIFEST})
    with small_disk(tmp_path / "build", 4000) as disk:
        full = run_exporter(tmp_path, "export")
        assert full.returncode in (ExitCode.RED, ExitCode.ENVIRONMENT)
        pattern = r"big/17/cpu: (killed|crash) at convert\n    cause: .*No space left on device"
        assert re.search(pattern, full.stdout), full.stdout + full.stderr
        disk.grow()
        again = run_exporter(tmp_path, "export", "--explain")
        assert again.returncode == 0, again.stdout + again.stderr
        assert "big/17/cpu runs: " in again.stdout


REPORT = ("COMPATIBILITY.md", "badge.svg", "models/net.md")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create green results with a report, then red ones."""
    root = make_green_project(tmp_path / "project")
    assert run_exporter(root, "report").returncode == 0
    return root


def refuses(root: Path, *command: str, because: str) -> None:
    done = run_exporter(root, *command)
    assert done.returncode == ExitCode.ENVIRONMENT, done.stdout + done.stderr
    assert because in done.stderr
    assert "Traceback" not in done.stderr


def fill(path: Path) -> None:
    """Fill the remaining space."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"0" * 4096)


def test_a_reports_folder_on_a_full_disk(project: Path) -> None:
    before = read_files(project / "reports")
    with small_disk(project / "reports", 160):
        for name, text in before.items():
            path = project / "reports" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text)
        fill(project / "reports/notes")
        write_results(project, Status.FAIL)
        refuses(project, "report", because="cannot be written: No space left on device")
        now = read_files(project / "reports")
        now.pop("notes")
        # Each file is complete, old or new, and no temporary file is left.
        assert set(now) <= set(before)
        assert "COMPATIBILITY.md" in now
        (project / "reports/notes").unlink()
        assert run_exporter(project, "report").returncode == 0
        on_disk = read_files(project / "reports")
    assert run_exporter(project, "report").returncode == 0
    assert read_files(project / "reports") == on_disk
    assert all(text in (before[name], on_disk[name]) for name, text in now.items())


@pytest.mark.parametrize("command", ["report", "baseline"])
def test_a_file_with_the_path_of_the_reports_folder(project: Path, command: str) -> None:
    shutil.rmtree(project / "reports")
    (project / "reports").write_text("no folder")
    done = run_exporter(project, command)
    assert done.returncode in (ExitCode.ENVIRONMENT, ExitCode.UNREADABLE)
    assert "Not a directory" in done.stderr
    assert "Traceback" not in done.stderr
    assert (project / "reports").read_text() == "no folder"


def test_an_export_keeps_its_results_if_the_reports_cannot_be_written(
    tmp_path: Path,
) -> None:
    root = make_project(tmp_path / "project", good="Good")
    (root / "reports").write_text("no folder")
    done = run_exporter(root, "export")
    assert done.returncode in (ExitCode.ENVIRONMENT, ExitCode.UNREADABLE)
    assert "Not a directory" in done.stderr
    assert "Traceback" not in done.stderr
    assert (root / "reports").read_text() == "no folder"
    assert "0 cells to run, 2 to keep" in run_exporter(root, "plan").stdout


@pytest.mark.campaign
def test_a_reports_folder_that_is_read_only(project: Path) -> None:
    before = read_files(project / "reports")
    write_results(project, Status.FAIL)
    with read_only(project / "reports"):
        refuses(project, "report", because="cannot be written: Read-only file system")
        refuses(project, "baseline", because="cannot be written: Read-only file system")
        gate = run_exporter(project, "gate")  # writes no file there
        assert "Traceback" not in gate.stderr
        assert read_files(project / "reports") == before
    assert run_exporter(project, "report").returncode == 0
    assert read_files(project / "reports") != before


@pytest.mark.campaign
def test_a_build_folder_that_is_read_only(project: Path) -> None:
    with read_only(project / "build"):
        for command in ("export", "gc"):
            refuses(project, command, because="Read-only file system")
        for command in ("report", "plan"):  # these write no file there
            done = run_exporter(project, command)
            assert done.returncode == 0, done.stderr


@pytest.mark.campaign
def test_a_checkout_that_is_read_only_has_the_same_verdicts(project: Path) -> None:
    def read_verdicts() -> list[tuple[int, str]]:
        done = [run_exporter(project, command) for command in ("gate", "check")]
        return [(each.returncode, each.stdout) for each in done]

    assert run_exporter(project, "baseline").returncode == 0
    for status in (Status.PASS, Status.FAIL):
        write_results(project, status)
        verdicts = read_verdicts()
        assert verdicts[0][0] == (status is Status.FAIL)
        with read_only(project):
            assert read_verdicts() == verdicts


def behind(path: Path) -> None:
    os.utime(path, (1, 1))


def ahead(path: Path) -> None:
    os.utime(path, (time.time() + 1e6, time.time() + 1e6))


@pytest.mark.campaign
@pytest.mark.parametrize(("stamp", "shift"), [(behind, 86_400), (ahead, -86_400)])
def test_a_clock_that_jumps_changes_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int, stamp: Callable[[Path], None]
) -> None:
    campaign.make_project(tmp_path, models=3, opsets=3)
    campaign.run(tmp_path)
    contents = campaign.contents(tmp_path)
    now, now_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: now() + shift)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + shift * 10**9)
    for path in (tmp_path / "build").rglob("*"):
        stamp(path)
    assert campaign.run(tmp_path).reasons == {}
    file = tmp_path / "build/m001/8.onnx"
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    file.write_bytes(data)
    stamp(file)
    monkeypatch.setattr(time, "time", now)
    monkeypatch.setattr(time, "time_ns", now_ns)
    reasons = campaign.run(tmp_path).reasons
    assert reasons == {"m001/8/cpu": "m001/8.onnx is not the file that was proved"}
    assert campaign.contents(tmp_path) == contents
    assert campaign.run(tmp_path).reasons == {}
