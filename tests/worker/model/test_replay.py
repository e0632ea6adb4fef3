"""A replay of a script changes no file of the project, by Python or by native code.

Each test runs in a process of its own, because the refusal cannot be undone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.worker.process import landlock
from tests.integration.project import run_python

HEAD = """
import ctypes, json, logging, os, pathlib, shutil, sqlite3, sys, tempfile
import numpy as np, torch
from pathlib import Path
from exporter.worker.model.replay import refuse_writes
from exporter.worker.process.failure import Failure

root = Path(sys.argv[1])
os.chdir(root)
"""
ACTIONS = """
def write_natively(path):
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    if not libc.fopen(str(path).encode(), b"w"):
        raise PermissionError("fopen")

def save_tensors(path):
    from safetensors.torch import save_file
    save_file({"w": torch.zeros(2)}, path)

def save_script(path):
    torch.jit.script(torch.nn.Linear(1, 1)).save(path)

ACTIONS = {
    "open": lambda path: open(path, "w").close(),
    "append": lambda path: open(path, "a").close(),
    "update": lambda path: open(path, "r+").close(),
    "write_text": lambda path: Path(path).write_text("changed"),
    "os.open": lambda path: os.close(os.open(path, os.O_RDWR)),
    "numpy": lambda path: np.save(open(path, "wb"), np.zeros(2)),
    "torch.save": lambda path: torch.save({"w": torch.zeros(2)}, path),
    "torch.save old": lambda path: torch.save({}, path, _use_new_zipfile_serialization=False),
    "torch.save path": lambda path: torch.save({"w": torch.zeros(2)}, Path(path).absolute()),
    "safetensors": save_tensors,
    "script": save_script,
    "remove": os.remove,
    "replace": lambda path: os.replace(other, path),
    "rename": lambda path: os.rename(path, str(path) + ".old"),
    "truncate": lambda path: os.truncate(path, 0),
    "link": lambda path: os.symlink(path, str(path) + ".link"),
    "log": lambda path: logging.FileHandler(path),
    "native": write_natively,
}
other = tempfile.mkstemp()[1]

def attempt(path):
    results = {}
    for name, act in ACTIONS.items():
        Path(other).touch()
        try:
            act(path)
            results[name] = "works"
        except (OSError, RuntimeError) as error:
            results[name] = type(error).__name__
        except Exception as error:
            results[name] = repr(error)
    return results

with refuse_writes(root):
    results = {name: attempt(name) for name in ("last.pt", "inner/last.pt", "link/last.pt")}
    os.makedirs("out/inner", exist_ok=True)
    Path(tempfile.mkstemp()[1]).write_text("of a library")
    Path("build/.work/tiny/log").write_text("of the worker")
    Path(sys.argv[2], "new.txt").write_text("elsewhere")
results["after"] = {"native": attempt("last.pt")["native"]}
print(json.dumps(results))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for folder in ("inner", "build/.work/tiny"):
        (root / folder).mkdir(parents=True)
    for name in ("last.pt", "inner/last.pt"):
        (root / name).write_text("precious")
    (root / "link").symlink_to(root / "inner")
    (tmp_path / "elsewhere").mkdir()
    return root


def run(root: Path, script: str) -> str:
    process = run_python(root, "-c", HEAD + script, str(root), str(root.parent / "elsewhere"))
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()[-1]


def test_no_writer_reaches_a_file_of_the_project(root: Path) -> None:
    results = json.loads(run(root, ACTIONS))
    has_landlock = not landlock.find_obstacle()
    for path in ("last.pt", "inner/last.pt", "link/last.pt"):
        native = results[path].pop("native")
        assert native == "PermissionError" or not has_landlock
        assert results[path] == dict.fromkeys(results[path], "PermissionError")
    if has_landlock:
        assert results["after"] == {"native": "PermissionError"}
        for name in ("last.pt", "inner/last.pt"):
            assert (root / name).read_text() == "precious"
    assert (root / "build/.work/tiny/log").exists()
    assert (root.parent / "elsewhere/new.txt").exists()
    assert (root / "out/inner").is_dir()


def test_the_failure_names_the_file(root: Path) -> None:
    script = """
try:
    with refuse_writes(root):
        torch.save({}, "inner/last.pt")
except Failure as failure:
    print(failure.stage, failure)
"""
    assert run(root, script).startswith(
        "source inner/last.pt: the script writes it before its export, and a replay must not"
    )


def test_another_error_is_unchanged_and_a_handled_refusal_is_none(root: Path) -> None:
    script = """
try:
    with refuse_writes(root):
        raise ValueError("of the script")
except ValueError as error:
    print(error)
with refuse_writes(root):
    try:
        open("last.pt", "w")
    except OSError:
        pass
print("handled")
"""
    assert run(root, script) == "handled"


@pytest.mark.parametrize("trace", [False, True])
def test_paths_beside_the_project_are_no_inputs(root: Path, trace: bool) -> None:
    (root.parent / "log.txt").write_text("of another program")
    script = f"""
from exporter.worker.dependencies.opened_files import OpenedFiles

files = OpenedFiles(trace={trace})
with files.watch(), refuse_writes(root):
    Path("last.pt").read_text()
accesses = files.list_accesses()
paths = [*accesses.read, *accesses.listed, *accesses.tested]
print(json.dumps([path.removeprefix(f"{{root.parent}}/") for path in paths]))
"""
    paths = json.loads(run(root, script))
    assert "project/last.pt" in paths
    assert not {"log.txt", "elsewhere"} & set(paths)
