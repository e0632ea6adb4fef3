"""Each stored file becomes a link to a device, a pipe or a folder, and each command ends.

One number of a document becomes NaN or infinite, and each folder becomes a file. The kind changes
with the path and the command; the session `faults` tries all kinds.

A command has a limit of memory, and ends with an exit code and a message: no traceback, no wait.
It never removes a file in a folder that has the path of a written file, nor a file that has the
path of a written folder.
`pytest -s -m campaign tests/faults/test_stored_files.py` prints a row for each file and kind.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import random
import re
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
from exporter.report.pages.templates import find_packaged_templates
from tests.faults.corruption import endless, file, folder, no_number, pipe
from tests.integration.project import MODELS, format_entry, run_exporter, write_project

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(sys.platform != "linux", reason="`ulimit` and devices of Linux"),
    pytest.mark.timeout(7200),
]

IS_LONG = os.environ.get("FAULTS") == "long"
ON_FILES = (endless, pipe, folder, no_number)
ON_FOLDERS = (file, pipe, folder)
#: Bytes of addresses of a command: a process with torch needs more than half of them.
LIMIT = 8 << 30
SECONDS = 60
COMMANDS = (
    ("check",),
    ("plan",),
    ("list",),
    ("report", "--site", "site"),
    ("gate",),
    ("baseline",),
    ("diff", "build/results.json", "reports/baseline"),
    ("gc",),
    ("explain", "net/17/cpu"),
    ("repro", "net/17/cpu", "again"),
    ("export",),
    ("init", "--yes", "--ci", "github"),
)
#: Commands for a destination of `publish`.
SHIPPING = (("verify", "dist"), ("publish", "dist", "--initial"))
#: Commands for the store, when the build folder lacks the model.
RESTORING = (("export",), ("plan",), ("gc",))
STORE = ".git/exporter-store"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with each kind of stored file."""
    for function in entry_point.BUILT_IN.values():  # each fork would import it again
        importlib.import_module(function.partition(":")[0])
    root = tmp_path_factory.mktemp("stored") / "project"
    files = {"models.py": MODELS, "net.toml": "format = 1\n" + format_entry("net")}
    write_project(root, files)
    (root / "templates").mkdir()
    shutil.copy(find_packaged_templates() / "gate.md.jinja", root / "templates")
    subprocess.run(["git", "init", "-q", root], check=True)
    for command in (
        ("init", "--yes", "--ci", "github"),
        ("export",),
        ("baseline",),
        ("report", "--site", "site"),
        ("repro", "net/17/cpu", "again"),
        ("publish", "dist", "--initial"),
    ):
        run_exporter(root, *command, code=0)
    return root


def list_paths(root: Path) -> list[str]:
    """Return the files and folders that commands wrote; of equal ones, such as samples, the first.

    The folder of git has only the store.
    """
    names = (path.relative_to(root).as_posix() for path in sorted(root.rglob("*")))
    others = re.compile(r"\.git(/(?!exporter-store).*)?|build/\.[^/]*|(.*/)?test_data_set_[1-9].*")
    return [name for name in names if not others.fullmatch(name)]


def sign(path: Path) -> None:
    """Write the digest of a document that another program changed."""
    head, digest, rest = path.read_bytes().partition(b'",')
    if head.startswith(b'{\n  "sha256": "'):
        head = head[: -len(hashlib.sha256().hexdigest())]
        path.write_bytes(head + hashlib.sha256(rest).hexdigest().encode() + digest + rest)


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


def choose_commands(name: str) -> tuple[tuple[str, ...], ...]:
    if name.startswith(STORE):
        return RESTORING
    return SHIPPING if name.startswith("dist") else COMMANDS


@pytest.mark.parametrize("turn", range(len(ON_FILES)) if IS_LONG else [0])
def test_each_command_ends_with_a_message(exported: Path, tmp_path: Path, turn: int) -> None:
    chosen = re.compile(os.environ.get("STORED_FILES", ""))
    problems = []
    for number, name in enumerate(list_paths(exported)):
        if not chosen.match(name):
            continue
        kinds = ON_FOLDERS if (exported / name).is_dir() else ON_FILES
        for index, command in enumerate(choose_commands(name)):
            if not IS_LONG and (number + index) % 4:  # the table of all pairs takes half an hour
                continue
            kind = kinds[(number + index + turn) % len(kinds)]
            root = tmp_path / "project"
            shutil.copytree(exported, root, symlinks=True)
            if name.startswith(STORE):
                shutil.rmtree(root / "build/net")
            path = root / name
            kind(path, random.Random(f"{name} {command} {turn}"))
            if kind is no_number:
                sign(path)
            code, message = run(root, *command)
            row = (name, kind.__name__, " ".join(command), code, message)
            print(" | ".join(row))  # noqa: T201 - the table
            kept = {file: path, folder: path / "something"}.get(kind)
            is_kept = kept is None or kept.is_file()
            if not (is_kept and code.isdigit() and int(code) <= ExitCode.UNREADABLE):
                problems.append((*row, "" if is_kept else "removed"))
            shutil.rmtree(root)
    assert not problems
