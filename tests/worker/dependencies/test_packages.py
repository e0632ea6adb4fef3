"""Packages that a model searched for and did not load."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import packaging.version  # noqa: F401 - it is loaded, as in a worker
import pytest
import torch

from exporter.cache import states
from exporter.cache.states import read_loaded_state
from exporter.worker.dependencies import packages as module
from exporter.worker.dependencies.packages import list_loaded_packages, watch_searches
from tests.distributions import write_distribution

MODEL = """
import importlib.metadata as metadata
import importlib.util
import pickle  # it searches for modules of other systems

try:
    import fast_of_test
except ImportError:
    fast_of_test = None
try:
    import space_of_test.inner
except ImportError: ...
is_found = importlib.util.find_spec("found_of_test") is not None
try:
    version = metadata.version("version-of-test")
except metadata.PackageNotFoundError:
    version = ""
"""


def execute(file: Path, text: str = MODEL) -> None:
    exec(compile(text, str(file), "exec"), {})


def clear_caches() -> None:
    states.read_distribution.cache_clear()
    states.list_metadata_folders.cache_clear()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a project with an own folder of packages, after its code was executed."""
    installed, root = tmp_path / "site-packages", tmp_path / "project"
    for folder in (installed / "space_of_test", root):
        folder.mkdir(parents=True)
    (installed / "found_of_test.py").touch()
    (root / "searching.py").write_text(MODEL)
    monkeypatch.setattr(sys, "path", [str(root), str(installed), *sys.path])
    monkeypatch.setattr(states, "_FIRST_PATH", (str(installed), *states._FIRST_PATH))
    monkeypatch.setattr(module, "SEARCHES", module._Searches())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(metadata.Distribution, "discover", metadata.Distribution.discover)
    clear_caches()
    watch_searches(root)
    execute(root / "searching.py")
    yield root
    clear_caches()


def test_names_that_a_model_searched_for_are_dependencies(project: Path) -> None:
    searched = {n: s for n, s in list_loaded_packages(project).items() if "of" in n.split()[-1]}
    assert searched == {
        "module fast_of_test": "missing",
        "module found_of_test": "installed",
        "module space_of_test.inner": "missing",
        "version version-of-test": "missing",
    }
    assert not [name for name in list_loaded_packages(project) if "org" in name]
    installed = project.parent / "site-packages"
    (installed / "fast_of_test").mkdir()
    (installed / "space_of_test/inner.py").touch()
    (installed / "found_of_test.py").unlink()
    write_distribution(installed, "version-of-test", "2.0")
    clear_caches()
    now = {name: read_loaded_state(name, project).partition(" ")[0] for name in searched}
    assert list(now.values()) == ["installed", "missing", "installed", "2.0"]


def test_searches_of_torch_and_of_tools_do_not_count(project: Path) -> None:
    packages, text = Path(torch.__file__).parents[1], MODEL.replace("fast_of", "slow_of")
    execute(packages / "torch/searching.py", text)
    assert "module slow_of_test" not in list_loaded_packages(project)
    execute(packages / "acme/searching.py", text)
    assert list_loaded_packages(project)["module slow_of_test"] == "missing"


def test_a_harmless_package_counts_if_the_model_mentions_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project / "progress.py"
    for text, is_counted in (("import json", False), ("from packaging import version", True)):
        path.write_text(text)
        module._read_mentions.cache_clear()
        monkeypatch.setattr(module, "list_module_files", lambda: [str(path)])
        assert ("packaging" in list_loaded_packages(project)) is is_counted
