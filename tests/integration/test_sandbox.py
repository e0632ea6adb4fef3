"""Models in a sandbox: their own writes, connections and looks at processes fail as errors."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from exporter.records.record import Status
from exporter.worker.process import landlock
from tests.integration.project import make_project, read_cells, run_exporter

MODELS = """
import socket


class Writes(Good):
    def __init__(self):
        super().__init__()
        Path(__file__).with_name("new.txt").write_text("text")


class Connects(Good):
    def __init__(self):
        super().__init__()
        socket.create_connection(("127.0.0.1", int(Path(__file__).with_name("port").read_text())))
"""
#: Why the system does not offer a sandbox; without one, the exports would only fail.
NO_LANDLOCK = landlock.find_obstacle()
SOURCES = {"good": "Good", "writes": "Writes", "connects": "Connects"}


def export(root: Path, sandbox: str) -> dict[str, tuple[Status, str]]:
    """Return the status and the message of each model."""
    settings = f'[tool.exporter]\nsandbox = "{sandbox}"\n'
    make_project(root, more_models=MODELS, settings=settings, opsets="[17]", **SOURCES)
    with socket.create_server(("127.0.0.1", 0)) as server:
        (root / "manifests/port").write_text(str(server.getsockname()[1]))
        run_exporter(root, "export")
    records = read_cells(root).values()
    return {record.cell.model: (record.status, record.message) for record in records}


@pytest.mark.skipif(bool(NO_LANDLOCK), reason=NO_LANDLOCK)
def test_a_model_in_landlock_writes_only_to_its_folder(tmp_path: Path) -> None:
    results = export(tmp_path, "landlock")
    assert results["good"][0] is Status.PASS
    for model in ("writes", "connects"):
        assert results[model][0] is Status.ERROR
        assert "PermissionError" in results[model][1]
    assert not (tmp_path / "manifests/new.txt").exists()


def test_the_actions_of_the_models_work_without_a_sandbox(tmp_path: Path) -> None:
    results = export(tmp_path, "none")
    assert results["writes"][0] is Status.PASS
    assert results["connects"][0] is Status.PASS
    assert (tmp_path / "manifests/new.txt").exists()
