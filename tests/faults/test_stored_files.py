"""Each stored file becomes a link to a device, a pipe or a folder, and each command ends.

The kind changes with the file and the command; the session `faults` tries all kinds.

A command has a limit of memory, and ends with an exit code and a message: no traceback, no wait.
`pytest -s -m campaign tests/faults/test_stored_files.py` prints a row for each file and kind.
"""

from __future__ import annotations

import importlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from exporter.cli import entry_point
from exporter.core.errors import ExitCode
from tests.faults.corruption import endless, folder, pipe
from tests.integration.project import MODELS, format_entry, run_exporter, write_project

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(sys.platform != "linux", reason="`ulimit` and devices of Linux"),
]

IS_LONG = os.environ.get("FAULTS") == "long"
KINDS = (endless, pipe, folder)
#: Bytes of addresses of a command: a process with torch needs more than half of them.
LIMIT = 8 << 30
SECONDS = 60
COMMANDS = (
    ("check",),
    ("plan",),
    ("list",),
    ("report",),
    ("gate",),
    ("baseline",),
    ("diff", "build/results.json", "reports/baseline"),
    ("gc", "--dry-run"),
    ("explain", "net/17/cpu"),
    ("repro", "net/17/cpu", "again"),
    ("export", "--dry-run"),
    ("init", "--yes"),
)
#: Commands for a destination of `publish`.
SHIPPING = (("verify", "dist"), ("publish", "dist", "--initial"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with each kind of stored file."""
    for function in entry_point.BUILT_IN.values():  # each fork would import it again
        importlib.import_module(function.partition(":")[0])
    root = tmp_path_factory.mktemp("stored") / "project"
    files = {"models.py": MODELS, "net.toml": "format = 1\n" + format_entry("net")}
    write_project(root, files)
    subprocess.run(["git", "init", "-q", root], check=True)
    for command in (
        ("init", "--yes"),
        ("export",),
        ("baseline",),
        ("publish", "dist", "--initial"),
    ):
        run_exporter(root, *command, code=0)
    return root


def list_files(root: Path) -> list[str]:
    paths = (path for path in sorted(root.rglob("*")) if path.is_file())
    names = (path.relative_to(root).as_posix() for path in paths)
    return [each for each in names if not each.startswith((".git/", "build/.", "build/net/test_"))]


def run(root: Path, *arguments: str) -> tuple[str, str]:
    """Run a command in a fork with a limit of memory.

    Returns:
        Its exit code, or `no end`, and the first line of its message.
    """
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            try:
                resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
                os.chdir(root)
                null = os.open(os.devnull, os.O_RDONLY)
                for target, source in ((0, null), (1, output.fileno()), (2, output.fileno())):
                    os.dup2(source, target)
                sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
                code = entry_point.run(arguments)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            finally:
                os._exit(99)
        deadline = time.monotonic() + SECONDS
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return "no end", ""
            time.sleep(0.01)
        output.seek(0)
        text = output.read().decode()
    lines = text.splitlines() or [""]
    is_bug = "Traceback" in text
    code = os.waitstatus_to_exitcode(status)
    return f"{code}{' Traceback' * is_bug}", lines[-1 if is_bug else 0][:100]


@pytest.mark.parametrize("turn", range(len(KINDS)) if IS_LONG else [0])
def test_each_command_ends_with_a_message(exported: Path, tmp_path: Path, turn: int) -> None:
    chosen = os.environ.get("STORED_FILES", "")
    problems = []
    for number, name in enumerate(list_files(exported)):
        if chosen and chosen not in name:
            continue
        commands = SHIPPING if name.startswith("dist/") else COMMANDS
        for index, command in enumerate(commands):
            kind = KINDS[(number + index + turn) % len(KINDS)]
            root = tmp_path / "project"
            shutil.copytree(exported, root, symlinks=True)
            kind(root / name, random.Random(0))
            code, message = run(root, *command)
            row = (name, kind.__name__, " ".join(command), code, message)
            print(" | ".join(row))  # noqa: T201 - the table
            if not (code.isdigit() and int(code) <= ExitCode.UNREADABLE):
                problems.append(row)
            shutil.rmtree(root)
    assert not problems
