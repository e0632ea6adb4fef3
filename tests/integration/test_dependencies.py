"""A cell is stale after a change of anything that its model read, tested or listed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.integration.project import ROOT, read_cells, run_exporter
from tests.tracer_support import needs_tracer

MODEL = """
import importlib.util
import os
import runpy
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT.parent / "library"))
import outside_module

sys.path[:0] = [str(ROOT / "plain/inner.zip"), str(ROOT.parent / "library/outer.zip")]
import inner_package.module
import outer_module


def import_file(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


loaded = import_file("loaded", ROOT / "plain/loaded.py")
namespace = {}
exec((ROOT / "plain/executed.py").read_text(), namespace)
import forgotten

del sys.modules["forgotten"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        values = [loaded.VALUE, namespace["VALUE"], forgotten.VALUE, outside_module.VALUE]
        values += [inner_package.module.VALUE, outer_module.VALUE]
        values.append(runpy.run_path(str(ROOT / "plain/run.py"))["VALUE"])
        values.append(int(np.memmap(ROOT / "data/map.bin", "uint8", "r+")[0]))
        with sqlite3.connect(ROOT / "data/base.db") as base:
            values.append(base.execute("select x from t").fetchone()[0])
        folder = os.open(ROOT / "data", os.O_RDONLY)
        with open(os.open("in_folder.txt", os.O_RDONLY, dir_fd=folder)) as file:
            values.append(int(file.read()))
        output = subprocess.run(["cat", ROOT / "data/child.txt"], capture_output=True, check=True)
        values.append(int(output.stdout))
        values.append(int((ROOT / "data/link.txt").read_text()))
        values.append(int((ROOT.parent / "outside.txt").read_text()))
        values.append(int((ROOT / "build/result.txt").read_text()))
        values.append(len(os.listdir(ROOT / "listed")))
        values.append(int((ROOT / "data/optional.txt").exists()))
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as generated:
            generated.write("VALUE = 1")
        values.append(import_file("generated", generated.name).VALUE)
        values.append(len(os.environ.get("USER", "")))
        values.append(int(os.environb.get(b"CUDA_CACHE_MAXSIZE", b"0")))
        values.append(int(os.environ["MY_VALUE"]))
        values.append(int(os.environ.setdefault("MODEL_SETS_IT", "1")))
        self.values = nn.Parameter(torch.tensor([float(value) for value in values]))

    def forward(self, x):
        return x + self.values.sum()


class Lacks(Net):
    def __init__(self):
        super().__init__()
        os.environ.copy()
        os.environ["WITHHELD_VALUE"]
"""
MANIFEST = """
format = 1
[models.net]
source = "net.py:Net"
inputs = [{ name = "x", shape = [3] }]
outputs = [{ name = "y", shape = [3] }]
opsets = 18
depends = ["../hidden/**/*.bin"]

[models.lacks]
extends = "net"
source = "net.py:Lacks"
expect = [{ reason = "the variable is not passed on" }]
"""


SETTINGS = '[tool.exporter]\nstore = "off"\nenvironment = ["MY_*", "XDG_CACHE_HOME"]\n'
ENVIRONMENT = {"MY_VALUE": "1", "USER": "me", "XDG_CACHE_HOME": "/nowhere"}


def write_database(path: Path, *statements: str) -> None:
    import sqlite3

    with sqlite3.connect(path) as base:
        for statement in statements:
            base.execute(statement)
    base.close()


def write_archive(path: Path, module: str, text: str = "VALUE = 1\n") -> None:
    with ZipFile(path, "w") as archive:
        if "/" in module:
            archive.writestr(f"{module.partition('/')[0]}/__init__.py", "")
        archive.writestr(module, text)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an exported project and files beside it."""
    folder = tmp_path_factory.mktemp("read")
    root = folder / "project"
    for name in ("manifests", "plain", "data/versions", "listed", "build"):
        (root / name).mkdir(parents=True)
    (folder / "library").mkdir()
    (folder / "library/outside_module.py").write_text("VALUE = 1\n")
    (folder / "outside.txt").write_text("1")
    for name in ("plain/loaded.py", "plain/executed.py", "plain/run.py", "manifests/forgotten.py"):
        (root / name).write_text("VALUE = 1\n")
    for name in ("in_folder", "child", "versions/1", "versions/2"):
        (root / f"data/{name}.txt").write_text("1")
    write_archive(root / "plain/inner.zip", "inner_package/module.py")
    write_archive(folder / "library/outer.zip", "outer_module.py")
    (root / "data/link.txt").symlink_to("versions/1.txt")
    (root / "data/map.bin").write_bytes(b"\1")
    (root / "build/result.txt").write_text("1")
    write_database(root / "data/base.db", "create table t (x int)", "insert into t values (1)")
    (root / "pyproject.toml").write_text(SETTINGS)
    (root / "hidden/inner").mkdir(parents=True)
    (root / "hidden/inner/a.bin").touch()
    (root / "manifests/net.py").write_text(MODEL)
    (root / "manifests/net.toml").write_text(MANIFEST)
    process = run_exporter(root, "export", **ENVIRONMENT, WITHHELD_VALUE="secret", code=0)
    record = read_cells(root)["net/18/cpu"]
    assert record.untracked == ()
    assert not [name for name in record.packages if name.startswith(tempfile.gettempdir() + "/tmp")]
    process = run_exporter(root, "plan", **ENVIRONMENT)
    assert "0 cells to run, 2 to keep" in process.stdout, process.stdout
    return folder


def write(name: str, text: str = "VALUE = 2\n") -> Callable[[Path], object]:
    return lambda root: (root / name).write_text(text)


def retarget(root: Path) -> None:
    (root / "data/link.txt").unlink()
    (root / "data/link.txt").symlink_to("versions/2.txt")


EDITS: dict[str, Callable[[Path], object]] = {
    "loaded.py": write("plain/loaded.py"),
    "executed.py": write("plain/executed.py"),
    "run.py": write("plain/run.py"),
    "forgotten.py": write("manifests/forgotten.py"),
    "outside_module.py": write("../library/outside_module.py"),
    "inner.zip": lambda root: write_archive(
        root / "plain/inner.zip", "inner_package/module.py", "VALUE = 2\n"
    ),
    "outer.zip": lambda root: write_archive(
        root.parent / "library/outer.zip", "outer_module.py", "VALUE = 2\n"
    ),
    "map.bin": lambda root: (root / "data/map.bin").write_bytes(b"\2"),
    "base.db": lambda root: write_database(root / "data/base.db", "update t set x = 2"),
    "in_folder.txt": write("data/in_folder.txt", "2"),
    "child.txt": write("data/child.txt", "2"),
    "versions/1.txt": write("data/versions/1.txt", "2"),
    "link.txt": retarget,
    "outside.txt": write("../outside.txt", "2"),
    "result.txt": write("build/result.txt", "2"),
    "listed": write("listed/new.txt"),
    "optional.txt": write("data/optional.txt", ""),
    "manifests": write("manifests/numpy.py", ""),
    "hidden": write("hidden/inner/b.bin"),
    "library": write("../library/sqlite3.py", ""),
}


@needs_tracer
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("USER", "the environment variable USER changed"),
        ("CUDA_CACHE_MAXSIZE", "the environment variable CUDA_CACHE_MAXSIZE changed"),  # was unset
        ("MY_VALUE", "the environment variables or the sandbox of workers changed"),
        ("XDG_CACHE_HOME", "the environment variables or the sandbox of workers changed"),
        ("TORCH_COMPILE_DISABLE", "the environment variables or the sandbox of workers changed"),
    ],
)
def test_a_changed_variable_makes_the_cell_stale(exported: Path, name: str, reason: str) -> None:
    environment = {**ENVIRONMENT, name: "2"}
    process = run_exporter(exported / "project", "plan", "net", **environment)
    assert reason in process.stdout, process.stdout + process.stderr
    process = run_exporter(exported / "project", "plan", "net", **ENVIRONMENT)
    assert "0 cells to run" in process.stdout, process.stdout


@needs_tracer
def test_another_search_path_makes_the_cell_stale(exported: Path) -> None:
    path = os.pathsep.join((str(ROOT), str(exported / "library")))
    process = run_exporter(exported / "project", "plan", "net", **ENVIRONMENT, PYTHONPATH=path)
    assert "Python searches for modules in ../library" in process.stdout, process.stdout


@needs_tracer
def test_a_variable_that_workers_lack_is_named(exported: Path) -> None:
    record = read_cells(exported / "project")["lacks/18/cpu"]
    (advice,) = record.advice
    assert advice == (
        "the model reads WITHHELD_VALUE, which workers do not receive; add it to `environment` in "
        "[tool.exporter]"
    )
    assert "secret" not in record.to_json()


@needs_tracer
@pytest.mark.parametrize("name", EDITS)
def test_a_change_makes_the_cell_stale(exported: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / exported.name
    shutil.copytree(exported, folder, symlinks=True)
    # Files outside of the project have paths relative to it, so a copy finds its own ones.
    EDITS[name](folder / "project")
    process = run_exporter(folder / "project", "plan", **ENVIRONMENT)
    assert "net/18/cpu" in process.stdout, process.stdout + process.stderr
    assert name.rpartition("/")[2] in process.stdout
