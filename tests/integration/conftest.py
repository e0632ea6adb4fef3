"""Projects that several modules of tests copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.shared_projects import share, write_green, write_nets, write_tiny


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """Return a copy of the green project that a test may change."""
    return Path(shutil.copytree(share(write_green, tmp_path_factory), tmp_path / "project"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tiny project that a module may change."""
    shared = share(write_tiny, tmp_path_factory)
    return Path(shutil.copytree(shared, tmp_path_factory.mktemp("tiny") / "project"))


@pytest.fixture(scope="module")
def good(tiny: Path) -> Path:
    """Return the copy without its red model."""
    (tiny / "manifests/bad.toml").unlink()
    return tiny


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project of right and wrong models that a module may change."""
    shared = share(write_nets, tmp_path_factory)
    return Path(shutil.copytree(shared, tmp_path_factory.mktemp("nets") / "project"))
