"""Create projects of tiny models with different outcomes, and run commands in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.records.record import Record, read_run
from tests.integration.program_server import can_run, run_command

ROOT = Path(__file__).parents[2]

MODELS = """
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn


class Good(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)


class Baked(Good):
    '''Scales by a constant from the example.'''

    def forward(self, x):
        return super().forward(x * float(x.detach().abs().max()))


class SegfaultsOnce(Good):
    '''Ends with a segmentation fault in the first export only.'''

    def forward(self, x):
        marker = Path(__file__).with_name("died")
        if torch.onnx.is_in_onnx_export() and not marker.exists():
            marker.touch()
            print("about to die", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().forward(x)


class Silent(Good):
    '''Closes its output streams.'''

    def __init__(self):
        super().__init__()
        sys.stdout.close()
        sys.stderr = None


class Exits(Good):
    def forward(self, x):
        os._exit(0)


class Sleeps(Good):
    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            time.sleep(300)
        return super().forward(x)


class Raises(Good):
    def forward(self, x):
        raise RuntimeError("no \\x1b[31mway")
"""


def format_entry(
    id: str,
    source: str = "models.py:Good",
    *lines: str,
    opsets: object = 17,
    x: str = '"batch", 4',
    y: str = '"batch", 3',
) -> str:
    """Return an entry with the shapes of an input `x` and an output `y`, and with more lines."""
    own = "".join(f"{line}\n" for line in lines)
    return f"""
[models.{id}]
source = "{source}"
inputs = [{{ name = "x", shape = [{x}] }}]
outputs = [{{ name = "y", shape = [{y}] }}]
opsets = {opsets}
{own}"""


def make_project(
    root: Path,
    *,
    more_models: str = "",
    settings: str = "[tool.exporter]\n",
    opsets: str = "[16, 17]",
    **sources: str,
) -> Path:
    """Create a project with a model for each `id="Source"`; `Sleeps` has a short timeout.

    Args:
        root: The project.
        more_models: Code with classes beside those of `MODELS`.
        settings: The content of pyproject.toml.
        opsets: The opsets of each model.
        sources: The class of each model.
    """
    entries = []
    for id, source in sources.items():
        timeout = f'timeout = "{"10s" if source == "Sleeps" else "5m"}"'
        entries.append(format_entry(id, f"models.py:{source}", timeout, opsets=opsets))
    manifest = "format = 1\n" + "".join(entries)
    return write_project(root, {"models.py": MODELS + more_models, "tiny.toml": manifest}, settings)


def write_project(
    root: Path, manifests: Mapping[str, str], settings: str = "[tool.exporter]\n"
) -> Path:
    """Create a project with settings in pyproject.toml and files in the folder of manifests."""
    (root / "manifests").mkdir(parents=True, exist_ok=True)
    for name, text in manifests.items():
        (root / "manifests" / name).write_text(text, encoding="utf-8")
    (root / "pyproject.toml").write_text(settings, encoding="utf-8")
    return root


def run_exporter(
    root: Path, *arguments: str, code: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in the project and require its exit code; its output is not a terminal."""
    inherited = {name: value for name, value in os.environ.items() if "GITHUB" not in name}
    for name in ("CI", "COLUMNS"):  # lines are not wrapped
        inherited.pop(name, None)
    environment = {**inherited, "PYTHONPATH": str(ROOT), **environment}
    if can_run(environment):
        ended = run_command(arguments, root, environment)
    else:
        ended = subprocess.run(
            [sys.executable, "-m", "exporter", *arguments],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert code in (None, ended.returncode), ended.stdout + ended.stderr
    return ended


def run_python(
    root: Path, *arguments: str, input: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, in a process of its own with the modules of this checkout."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )


def start_exporter(root: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command in a process of its own; `options` are those of `Popen`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    command = [sys.executable, "-u", "-m", "exporter", *arguments]
    return subprocess.Popen(command, cwd=root, env=environment, text=True, **options)


def run_git(root: Path, *arguments: str) -> str:
    """Run git with a test identity and return its output."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    process = subprocess.run(
        ["git", *identity, *arguments], cwd=root, capture_output=True, check=True
    )
    return process.stdout.decode().strip()


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their paths in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def read_cells(root: Path) -> dict[str, Record]:
    """Return the results of the project by the ids of their cells."""
    records = read_run(root / "build/results.json").records
    return {str(record.cell): record for record in records}
