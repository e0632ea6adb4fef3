"""The owner of the code that calls a hook is found on the stack."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import pkgutil
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from exporter.cache.states import read_distribution
from exporter.core.files import hash_file
from exporter.processes.worker_variables import WITHHELD, hash_variable
from exporter.worker.dependencies import opened_files
from exporter.worker.dependencies.opened_files import Caller, VariableReads, find_caller


@pytest.fixture(autouse=True)
def only_own_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the import of `importlib_metadata` by another test; it replaces Python's finder."""
    own = [each for each in sys.meta_path if "importlib_metadata" not in type(each).__module__]
    monkeypatch.setattr(sys, "meta_path", own)
    find = importlib.metadata.MetadataPathFinder.find_distributions
    monkeypatch.setattr(PathFinder, "find_distributions", find, raising=False)


def record(function: Callable[..., object], results: list[Caller]) -> Callable[..., object]:
    """Return the function with a hook that records its caller, as the hooks of the package do."""
    namespace = {"results": results, "find_caller": find_caller, "function": function}
    path = str(Path(opened_files.__file__).with_name("hook.py"))
    code = "def hook(*args):\n    results.append(find_caller())\n    return function(*args)\n"
    exec(compile(code, path, "exec"), namespace)
    return functools.wraps(function)(namespace["hook"])


@pytest.mark.parametrize(
    ("call", "caller"),
    [
        (lambda path: sorted(os.listdir(path)), Caller.PROJECT),  # noqa: PTH208 - the function under test
        (lambda path: os.walk(path).__next__(), Caller.PROJECT),
        (lambda path: list(pkgutil.iter_modules([str(path)])), Caller.IMPORT),
        (lambda path: list(importlib.metadata.distributions(path=[str(path)])), Caller.IMPORT),
    ],
)
def test_the_owner_of_a_listing_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Path], object],
    caller: Caller,
) -> None:
    results: list[Caller] = []
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, record(getattr(os, name), results))
    call(tmp_path)
    assert results[0] is caller


def test_this_package_lists_versions_as_a_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[Caller] = []
    monkeypatch.setattr(os, "listdir", record(os.listdir, results))
    assert read_distribution.__wrapped__("no-such-distribution", str(tmp_path)) == ("", "")
    assert set(results) == {Caller.TOOL}


def test_this_package_is_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Caller] = []
    (tmp_path / "a").touch()
    with monkeypatch.context() as patch:  # pytest removes the folder before it undoes patches
        patch.setattr(os, "open", record(os.open, results))
        hash_file(tmp_path / "a")
    assert results == [Caller.TOOL]


CACHES = {"HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "XDG_CACHE_HOME"}
CACHES |= {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}


def test_a_file_in_a_cache_depends_on_the_variables_of_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in CACHES - {"TORCH_HOME"}:
        monkeypatch.delenv(name, raising=False)
    reads, root = VariableReads(), tmp_path / "project"
    used = [f"{root}/weights.pt", f"{tmp_path}/torch.txt", f"{tmp_path}/home/weights.pt"]
    assert reads.read_states(used, root) == {}
    for path in ("torch/hub/weights.pt", "home/.cache/huggingface/weights.bin"):
        states = reads.read_states([*used, f"{tmp_path}/{path}"], root)
        assert states.keys() == CACHES
        assert states["TORCH_HOME"] == hash_variable("TORCH_HOME", f"{tmp_path}/torch")
        assert states["HF_HOME"] == "missing"
    # The copy of a project on a host of a cluster may be in a cache.
    assert reads.read_states([f"{tmp_path}/torch/project/net.py"], tmp_path / "torch/project") == {}


def test_a_withheld_variable_that_a_package_reads_explains_failures_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(WITHHELD, "CI,FLAG")
    reads = VariableReads()
    reads._is_watching = True
    for name, caller in (("CI", Caller.PACKAGE), ("FLAG", Caller.PROJECT), ("FLAG", Caller.TOOL)):
        monkeypatch.setattr(opened_files, "find_caller", lambda caller=caller: caller)
        reads.add(name)
    assert reads.list_withheld(is_failure=True) == ("CI", "FLAG")
    assert reads.list_withheld(is_failure=False) == ("FLAG",)


def test_variables_that_no_worker_has_from_the_user_are_no_dependencies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A copy of the environment reads all names; a script with `argparse` reads `COLUMNS`."""
    monkeypatch.setenv("FLAG", "1")
    monkeypatch.setattr(opened_files, "find_caller", lambda: Caller.PROJECT)
    reads = VariableReads()
    reads._is_watching = True
    for name in ("TMPDIR", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "COLUMNS", "TERM", "FLAG"):
        reads.add(name)
    assert reads.read_states([], tmp_path) == {"FLAG": hash_variable("FLAG", "1")}
