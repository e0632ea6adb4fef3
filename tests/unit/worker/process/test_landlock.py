"""A restricted process can write only to its folders, and reaches no network and no process."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from exporter.worker.process import landlock
from tests.integration.project import ROOT, run_python

offered = pytest.mark.skipif(bool(landlock.find_obstacle()), reason=landlock.find_obstacle())

#: Tries each action and prints its result.
SCRIPT = """
import os, signal, socket, sys
from pathlib import Path
from exporter.worker.process.landlock import restrict_process

project, folder, port, parent = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], os.getppid()
if sys.argv[4] == "landlock":
    restrict_process((folder, Path("/dev")))


def attempt(name, action):
    try:
        action()
        print(name, "works")
    except OSError as error:
        print(name, type(error).__name__)


attempt("read", lambda: (project / "model.py").read_text())
attempt("write to the folder", lambda: (folder / "18.onnx").write_text("graph"))
attempt("rename in the folder", lambda: (folder / "18.onnx").rename(folder / "17.onnx"))
attempt("write to a device", lambda: Path("/dev/null").write_text("text"))
attempt("write to the project", lambda: (project / "model.py").write_text("x"))
attempt("create in the project", lambda: (project / "new.py").touch())
attempt("remove from the project", lambda: (project / "other.py").unlink())
attempt("connect", lambda: socket.create_connection(("127.0.0.1", int(port)), 5).close())
attempt("signal the parent", lambda: os.kill(parent, signal.SIGCONT))
attempt("open the parent", lambda: open(f"/proc/{parent}/mem", "rb").close())
child = os.fork()
if child == 0:
    attempt("write from a child", lambda: (project / "model.py").write_text("x"))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""
ALLOWED = ("read", "write to the folder", "rename in the folder", "write to a device")
FORBIDDEN = (
    *("write to the project", "create in the project", "remove from the project", "connect"),
    *("signal the parent", "open the parent", "write from a child"),
)


def attempt(tmp_path: Path, mode: str) -> dict[str, str]:
    project, folder = tmp_path / "project", tmp_path / "job"
    for path in (project, folder):
        path.mkdir()
    for name in ("model.py", "other.py"):
        (project / name).touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        process = run_python(ROOT, "-u", "-c", SCRIPT, str(project), str(folder), port, mode)
    lines = (line.rpartition(" ") for line in process.stdout.splitlines())
    return {name: result for name, _, result in lines}


@offered
def test_a_restricted_process_reaches_only_its_folders(tmp_path: Path) -> None:
    results = attempt(tmp_path, "landlock")
    assert results == {
        **dict.fromkeys(ALLOWED, "works"),
        **dict.fromkeys(FORBIDDEN, "PermissionError"),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="the actions open files of /proc")
def test_the_same_actions_work_without_the_sandbox(tmp_path: Path) -> None:
    results = attempt(tmp_path, "none")
    results.pop("open the parent")  # the system may forbid it in any case
    assert set(results.values()) == {"works"}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (OSError(38, "Function not implemented"), "this kernel does not offer Landlock"),
        (3, "Landlock has version 3, expected at least 6"),
        (7, ""),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the module calls functions of Linux")
def test_an_old_kernel_is_reported(
    monkeypatch: pytest.MonkeyPatch, version: int | OSError, expected: str
) -> None:
    def call(*_: object) -> int:
        if isinstance(version, OSError):
            raise version
        return version

    monkeypatch.setattr(landlock, "_call", call)
    assert landlock.find_obstacle().startswith(expected)
    assert bool(landlock.find_obstacle()) == bool(expected)
    if expected:
        with pytest.raises(OSError, match=expected):
            landlock.restrict_process(())
