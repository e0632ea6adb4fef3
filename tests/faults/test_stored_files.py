"""Each stored file becomes a link to a device, a pipe or a folder, and each command ends.

A command has a limit of memory, and ends with an exit code and a message: no traceback, no wait.
`pytest -s -m campaign tests/faults/test_stored_files.py` prints a row for each file and kind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode
from tests.faults.corruption import endless, folder, pipe
from tests.integration.project import MODELS, ROOT, format_entry, run_exporter, write_project

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(sys.platform != "linux", reason="`ulimit` and devices of Linux"),
]

#: KiB of addresses for a command without torch, which needs more.
LIMIT = 4_000_000
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
    ("merge", "build"),
    ("init", "--yes"),
)
#: Commands for a destination of `publish`.
SHIPPING = (("verify", "dist"), ("publish", "dist"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with each kind of stored file."""
    root = tmp_path_factory.mktemp("stored") / "project"
    files = {"models.py": MODELS, "net.toml": "format = 1\n" + format_entry("net")}
    write_project(root, files)
    subprocess.run(["git", "init", "-q", root], check=True)
    for command in (("init", "--yes"), ("export",), ("baseline",), ("publish", "dist", "--initial")):
        run_exporter(root, *command, code=0)
    return root


def list_files(root: Path) -> list[str]:
    paths = (path for path in sorted(root.rglob("*")) if path.is_file())
    names = (path.relative_to(root).as_posix() for path in paths)
    return [each for each in names if not each.startswith((".git/", "build/.", "build/net/test_"))]


def run(root: Path, *arguments: str) -> tuple[str, str]:
    """Return the exit code of a command and the first line of its message."""
    line = f'ulimit -v {LIMIT}; exec "$@"'
    command = ("bash", "-c", line, "-", sys.executable, "-m", "exporter", *arguments)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        ended = subprocess.run(
            command,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no end", ""
    lines = (ended.stderr or ended.stdout).splitlines() or [""]
    is_bug = "Traceback" in ended.stderr or "Traceback" in ended.stdout
    return f"{ended.returncode}{' Traceback' * is_bug}", lines[-1 if is_bug else 0][:100]


@pytest.mark.parametrize("kind", [endless, pipe, folder])
def test_each_command_ends_with_a_message(exported: Path, tmp_path: Path, kind: object) -> None:
    chosen = os.environ.get("STORED_FILES", "")
    problems = []
    for name in list_files(exported):
        if chosen and chosen not in name:
            continue
        commands = SHIPPING if name.startswith("dist/") else COMMANDS
        for command in commands:
            root = tmp_path / "project"
            shutil.copytree(exported, root, symlinks=True)
            kind(root / name, None)  # type: ignore[operator]
            code, message = run(root, *command)
            row = (name, kind.__name__, " ".join(command), code, message)  # type: ignore[attr-defined]
            print(" | ".join(row))  # noqa: T201 - the table
            if not (code.isdigit() and int(code) <= ExitCode.UNREADABLE):
                problems.append(row)
            subprocess.run(["rm", "-rf", root], check=True)
    assert not problems
