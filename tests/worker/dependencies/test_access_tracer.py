"""The tracer sees every file that a process and its children open (Linux)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.worker.dependencies.file_access import Access
from tests.tracer_support import needs_tracer

pytestmark = needs_tracer

SCRIPT = """
import json, mmap, os, sqlite3, subprocess, sys
from exporter.worker.dependencies.access_tracer import AccessTracer

tracer = AccessTracer.start()
if tracer is None:
    sys.exit(3)
{body}
accesses = [(a.path, a.is_write, a.is_folder) for a in tracer.list_accesses()]
print(json.dumps(accesses))
"""


def trace(root: Path, body: str) -> list[tuple[str, bool, bool]]:
    """Run code in a traced process and return the accesses below the root."""
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    accesses = [tuple(access) for access in json.loads(process.stdout.splitlines()[-1])]
    return [access for access in accesses if access[0].startswith(str(root))]


@pytest.mark.parametrize(
    "body",
    [
        "open('data.bin').close()",
        "open('data.bin', 'r+').close()",
        "os.close(os.open('data.bin', os.O_RDONLY, dir_fd=os.open('.', os.O_RDONLY)))",
        "sqlite3.connect('data.bin').execute('pragma user_version').fetchall()",
        "subprocess.run(['cat', 'data.bin'], check=True, stdout=subprocess.DEVNULL)",
        (
            "subprocess.run('cd / && cat \\\"$OLDPWD/data.bin\\\"', shell=True, check=True, "
            "stdout=subprocess.DEVNULL)"
        ),
    ],
)
def test_every_way_to_read_a_file_is_seen(tmp_path: Path, body: str) -> None:
    (tmp_path / "data.bin").touch()
    assert (f"{tmp_path}/data.bin", False, False) in trace(tmp_path, body)


def test_kinds_of_access_differ(tmp_path: Path) -> None:
    body = "open('new.txt', 'w').close(); open('new.txt').close(); os.listdir(os.getcwd())"
    assert trace(tmp_path, body) == [
        (f"{tmp_path}/new.txt", True, False),
        (f"{tmp_path}/new.txt", False, False),
        (str(tmp_path), False, True),
    ]


def test_names_may_be_no_text_and_may_cross_memory_pages(tmp_path: Path) -> None:
    (tmp_path / ("n" * 250)).touch()
    body = f"""
name = {"n" * 250!r}
for padding in range(0, 600, 7):
    os.close(os.open('./' * padding + name, os.O_RDONLY))
open(b'\\xff.txt', 'w').close()
"""
    paths = [path for path, _, _ in trace(tmp_path, body)]
    assert len(paths) == len(range(0, 600, 7)) + 1
    assert {path.rpartition("/")[2] for path in paths} == {"n" * 250, "\udcff.txt"}


def test_the_second_list_adds_new_accesses(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    body = "open('a').close(); tracer.list_accesses(); open('b').close(); open('a').close()"
    assert [path[-1] for path, _, _ in trace(tmp_path, body)] == ["a", "b"]


def test_a_killed_child_does_not_stop_the_tracer(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    body = """
import signal, time
for _ in range(20):
    child = os.fork()
    if child == 0:
        while True:
            os.close(os.open('a', os.O_RDONLY))
    time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
    assert trace(tmp_path, body + "open('a').close()\n") == [(f"{tmp_path}/a", False, False)]


def test_flags_are_classified() -> None:
    import os

    assert Access("/a", os.O_WRONLY | os.O_APPEND).is_write
    assert Access("/a", os.O_RDWR | os.O_TRUNC).is_write
    assert Access("/a", os.O_RDWR | os.O_CREAT | os.O_EXCL).is_write
    assert not Access("/a", os.O_RDWR | os.O_CREAT).is_write
    assert not Access("/a", os.O_RDONLY).is_write


def test_a_second_tracer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.bin").touch()
    body = "assert AccessTracer.start() is None\nopen('data.bin').close()"
    assert (f"{tmp_path}/data.bin", False, False) in trace(tmp_path, body)


SEPARATE = """
for name in ("both.bin", "first.bin"), ("both.bin",):
    with tracer.separate():
        child = os.fork()
        if not child:
            for each in name:
                open(each).close()
            paths = [os.path.basename(a.path) for a in tracer.list_accesses()]
            os.write(1, json.dumps([p for p in paths if p.endswith('.bin')]).encode())
            os._exit(0)
        os.waitpid(child, 0)
print()
"""


def test_each_fork_reports_its_files_and_no_others(tmp_path: Path) -> None:
    for name in ("start", "first", "both"):
        (tmp_path / f"{name}.bin").touch()
    lines = SCRIPT.format(body=f"open('start.bin').close()\n{SEPARATE}")
    process = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    forks, own = process.stdout.splitlines()
    assert forks == '["start.bin", "both.bin", "first.bin"]["start.bin", "both.bin"]'
    assert [path for path, *_ in json.loads(own) if path.endswith(".bin")] == [
        str(tmp_path / "start.bin")
    ]


#: A program of Python, and whether it lists the folder by itself, not only for an import.
LISTINGS: dict[str, tuple[str, bool]] = {
    "import": ("import json, time; time.sleep(0.3)", False),
    "module of the folder": ("import helper, time; time.sleep(0.3)", False),
    "list": ("import os; os.listdir(os.getcwd())", True),
    "import, then list": ("import os, json; os.listdir(os.getcwd())", True),
    "list, then import": ("import os; os.listdir(os.getcwd()); import json", True),
    "list, then a codec": (
        "import os; os.listdir(os.getcwd()); open('a.txt', encoding='latin-1')",
        True,
    ),
    "walk": ("import os; list(os.walk(os.getcwd()))", True),
    "glob": ("import glob, os; glob.glob(os.getcwd() + '/*')", True),
    "fork": (
        "import json, os\nif os.fork() == 0: os.listdir(os.getcwd())\nelse: os.wait()",
        True,
    ),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_of_a_child_is_no_import(tmp_path: Path, name: str) -> None:
    code, lists = LISTINGS[name]
    (tmp_path / "helper.py").write_text("import csv")
    (tmp_path / "a.txt").touch()
    (tmp_path / "main.py").write_text(code)
    for command in (["-c", code], ["-u", f"{tmp_path}/main.py"]):
        body = f"subprocess.run([sys.executable, *{command!r}], check=True)"
        found = [list_listers(tmp_path, body)]
        # If a child ends before the tracer reads its search path, its import counts as a listing.
        while not lists and "program" in found[-1] and len(found) < 9:
            found.append(list_listers(tmp_path, body))
        assert ("program" in found[-1]) is lists, command
        assert found[-1], command


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("['ls', '.']", {"program"}),
        ("['sh', '-c', '(echo *)']", {"program"}),
        # Without the folder in its search path, Python lists it on request only.
        ("[sys.executable, '-I', '-c', 'import json']", set()),
        ("[sys.executable, '-P', '-c', 'import os, json; os.listdir(os.getcwd())']", {"program"}),
    ],
)
def test_a_program_lists_a_folder(tmp_path: Path, command: str, expected: set[str]) -> None:
    body = f"subprocess.run({command}, check=True, stdout=subprocess.DEVNULL)"
    assert list_listers(tmp_path, body) == expected


def list_listers(root: Path, body: str) -> set[str]:
    """Return who listed the folder of a traced process."""
    listed = "[(a.path, str(a.lister)) for a in tracer.list_accesses() if a.is_folder]"
    code = f"{SCRIPT.format(body=body)}\nprint({listed})"
    process = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    found = ast.literal_eval(process.stdout.splitlines()[-1])
    return {lister for path, lister in found if path.removesuffix("/.") == str(root)}
