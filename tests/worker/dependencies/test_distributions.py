"""Which distributions count among what a model was made of."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from exporter.worker.dependencies import distributions as packages


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that was there from the first, in which one brings another along."""
    for folder, name in ((tmp_path, "outer_of_test"), (tmp_path / "vendor", "inner_of_test")):
        (folder / f"{name}-1.5.dist-info").mkdir(parents=True)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n"
        (folder / f"{name}-1.5.dist-info" / "METADATA").write_text(metadata)
        (folder / f"{name}-1.5.dist-info" / "RECORD").write_text(f"{name}.py,,\n")
        (folder / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(packages, "_PATH", tuple(sys.path))
    monkeypatch.syspath_prepend(tmp_path / "vendor")
    packages._owners.cache_clear()
    return tmp_path


def test_an_installed_package_counts_and_one_that_it_brings_along_does_not(installed: Path) -> None:
    assert "outer_of_test" not in packages.list_loaded_packages()
    for name in ("outer_of_test", "inner_of_test"):
        importlib.import_module(name)
    found = packages.list_loaded_packages()
    packages._owners.cache_clear()
    assert found["outer_of_test"].startswith("1.5 ")
    assert "inner_of_test" not in found
