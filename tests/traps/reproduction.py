"""The reproducer of a trap: written as by `exporter repro`, and run without this package.

Output: `ScriptRunner`, `write_script`, and `pick_kinds`, which picks one trap of each kind of red.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exporter.jobs import JobFolder
from exporter.planning.plan import choose_route
from exporter.records.record import Record
from exporter.tools.repro import ReproducedCell, write_reproducer
from tests.traps.prove import CPU
from tests.traps.trap import ROOT, Trap

_SERVER = Path(__file__).with_name("script_server.py")


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """The end of a script."""

    code: int
    output: str


@dataclass(frozen=True, slots=True)
class ScriptRunner:
    """A process that runs scripts, see `script_server.py`."""

    process: subprocess.Popen[str]

    def run(self, script: Path) -> ScriptResult:
        """Run a script and return its exit code and output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{script}\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        output = (script.parent / "output.txt").read_text(encoding="utf-8", errors="replace")
        return ScriptResult(code, output)


@contextmanager
def start_runner(folder: Path) -> Iterator[ScriptRunner]:
    """Start a process in which this package cannot be imported."""
    (folder / "exporter.py").write_text("raise ImportError('not here')\n")
    # A copy, because modules next to a program hide others with the same name.
    server = shutil.copy(_SERVER, folder)
    process = subprocess.Popen(
        [sys.executable, server],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield ScriptRunner(process)


def write_script(trap: Trap, record: Record, built: Path, folder: Path) -> Path:
    """Write the reproducer of a record and return its script.

    Raises:
        ExporterError: If a script cannot show the failure.
    """
    cell = ReproducedCell(
        spec=trap.spec.resolve_cell(trap.opset, CPU.name),
        record=record,
        device=CPU,
        tools={},
        root=ROOT,
        built=JobFolder(built),
    )
    write_reproducer(cell, folder)
    return folder / "repro.py"


def pick_kinds(traps: Iterable[Trap]) -> list[Trap]:
    """Return the first trap of each status, stage, check and exporter."""
    kinds: dict[tuple[object, ...], Trap] = {}
    for trap in traps:
        verdict = trap.verdict
        exporter = choose_route(trap.spec, trap.opset).exporter
        kinds.setdefault((verdict.status, verdict.stage, verdict.check, exporter), trap)
    return list(kinds.values())
