"""Projects that several modules of tests copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.project import run_exporter
from tests.integration.results import make_green_project


@pytest.fixture(scope="session")
def green_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with two accepted green cells and its pages; tests change copies only."""
    root = make_green_project(tmp_path_factory.mktemp("green") / "project")
    command = run_exporter(root, "baseline")
    assert (command.returncode, "accepted 2 cells: " in command.stdout) == (0, True)
    assert run_exporter(root, "report").returncode == 0
    return root


@pytest.fixture
def project(green_project: Path, tmp_path: Path) -> Path:
    """Return a copy of the green project that a test may change."""
    return Path(shutil.copytree(green_project, tmp_path / "project"))
