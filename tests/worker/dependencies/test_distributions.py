"""Installed distributions with a loaded module."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from exporter.worker.dependencies import distributions


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the initial search path with a package that has another in its folder."""
    for folder, name in ((tmp_path, "outer_of_test"), (tmp_path / "vendor", "inner_of_test")):
        (folder / f"{name}-1.5.dist-info").mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n"
        (folder / f"{name}-1.5.dist-info" / "METADATA").write_text(metadata)
        (folder / f"{name}-1.5.dist-info" / "RECORD").write_text(f"{name}.py,,\n")
        (folder / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(distributions, "_PATH", tuple(sys.path))
    monkeypatch.syspath_prepend(tmp_path / "vendor")
    distributions.map_module_owners.cache_clear()
    return tmp_path


def test_a_vendored_package_is_omitted(installed: Path) -> None:
    assert "outer_of_test" not in distributions.list_loaded_packages()
    for name in ("outer_of_test", "inner_of_test"):
        importlib.import_module(name)
    packages = distributions.list_loaded_packages()
    distributions.map_module_owners.cache_clear()
    assert packages["outer_of_test"].startswith("1.5 ")
    assert "inner_of_test" not in packages
