"""Models in a sandbox: their own writes, connections and looks at processes fail as errors."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from exporter.processes import bubblewrap, landlock
from exporter.records.record import Status
from tests.integration.project import read_cells, run_exporter

MODELS = """
import os
import signal
import socket
from pathlib import Path

from torch import nn


class Good(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)


class Writes(Good):
    def __init__(self):
        super().__init__()
        Path(__file__).with_name("new.txt").write_text("text")


class Connects(Good):
    def __init__(self):
        super().__init__()
        socket.create_connection(("127.0.0.1", int(Path(__file__).with_name("port").read_text())))


class Looks(Good):
    '''Is an error if it sees more processes than its own and that of the sandbox.'''

    def __init__(self):
        super().__init__()
        seen = [name for name in os.listdir("/proc") if name.isdecimal()]
        assert len(seen) <= 3, f"{len(seen)} processes"


class Crashes(Good):
    def __init__(self):
        super().__init__()
        os.kill(os.getpid(), signal.SIGSEGV)
"""
#: Why the system does not offer a sandbox; without one, the exports would only fail.
NO_BUBBLEWRAP = bubblewrap.find_obstacle()
NO_LANDLOCK = landlock.find_obstacle()
NAMES = ("Good", "Writes", "Connects", "Looks", "Crashes")


def export(root: Path, sandbox: str) -> dict[str, tuple[Status, str]]:
    """Return the status and the message of each model."""
    make_project(root, sandbox, NAMES)
    with socket.create_server(("127.0.0.1", 0)) as server:
        (root / "manifests/port").write_text(str(server.getsockname()[1]))
        run_exporter(root, "export")
    records = read_cells(root).values()
    return {record.cell.model: (record.status, record.message) for record in records}


def make_project(root: Path, sandbox: str, names: tuple[str, ...]) -> None:
    entries = (
        f'[models.{name.lower()}]\nsource = "models.py:{name}"\nopsets = [17]\n'
        'inputs = [{ name = "x", shape = ["batch", 4] }]\n'
        'outputs = [{ name = "y", shape = ["batch", 3] }]\n'
        for name in names
    )
    (root / "manifests").mkdir()
    (root / "manifests/models.py").write_text(MODELS)
    (root / "manifests/nets.toml").write_text("format = 1\n" + "".join(entries))
    (root / "pyproject.toml").write_text(f'[tool.exporter]\nsandbox = "{sandbox}"\n')


@pytest.mark.skipif(bool(NO_BUBBLEWRAP), reason=NO_BUBBLEWRAP)
def test_a_model_in_bubblewrap_reaches_only_its_folder(tmp_path: Path) -> None:
    results = export(tmp_path, "bubblewrap")
    assert {model: status for model, (status, _) in results.items()} == {
        "good": Status.PASS,
        "writes": Status.ERROR,
        "connects": Status.ERROR,
        "looks": Status.PASS,
        "crashes": Status.CRASH,
    }
    assert "Read-only file system" in results["writes"][1]
    assert "refused" in results["connects"][1]
    assert "SIGSEGV" in results["crashes"][1]
    assert not (tmp_path / "manifests/new.txt").exists()


@pytest.mark.skipif(bool(NO_LANDLOCK), reason=NO_LANDLOCK)
def test_a_model_in_landlock_writes_only_to_its_folder(tmp_path: Path) -> None:
    results = export(tmp_path, "landlock")
    assert results["good"][0] is Status.PASS
    assert results["looks"][0] is Status.ERROR, "Landlock hides no process"
    for model in ("writes", "connects"):
        assert results[model][0] is Status.ERROR
        assert "PermissionError" in results[model][1]
    assert not (tmp_path / "manifests/new.txt").exists()


def test_the_actions_of_the_models_work_without_a_sandbox(tmp_path: Path) -> None:
    results = export(tmp_path, "none")
    assert results["writes"][0] is Status.PASS
    assert results["connects"][0] is Status.PASS
    assert (tmp_path / "manifests/new.txt").exists()


def test_a_missing_bubblewrap_is_reported_before_any_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path, "bubblewrap", ("Good",))
    monkeypatch.setenv("PATH", str(tmp_path))
    process = run_exporter(tmp_path, "export")
    assert process.returncode == 4
    assert "sandbox: the program bwrap is not installed; install the package bubblewrap" in (
        process.stdout + process.stderr
    )
