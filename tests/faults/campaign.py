"""A project of many quick models without torch, and the run of it as a process of its own.

In: how each cell ends, as a table in a file. Out: the records of real runs of the real engine and
nursery, and a journal of every cell that a worker made. `python -m tests.faults.campaign ROOT` is
the run; `make` lays the project out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

from exporter.build import BuildFolder, run_plan
from exporter.build.engine import LocalEngine
from exporter.core.errors import ExporterError
from exporter.manifest import Manifest
from exporter.planning.plan import make_plan
from exporter.processes import ForkServerStarter, make_worker_environment
from exporter.records.record import Record, read_run
from tests.unit.build.builders import Noted
from tests.unit.factory import make_manifest, make_spec

REPOSITORY = Path(__file__).parents[2]
JOBS = 2
_TODAY = date(2026, 1, 1)


def make(
    root: Path,
    *,
    models: int,
    opsets: int,
    timeout: float = 60.0,
    pause: float = 0.0,
    seed: int = 0,
) -> None:
    """Lays out a project with so many models, all of them sound; another seed makes all stale."""
    root.mkdir(parents=True, exist_ok=True)
    shape = {"models": models, "opsets": opsets, "timeout": timeout, "pause": pause, "seed": seed}
    (root / "shape.json").write_text(json.dumps(shape))
    foresee(root, {})


def foresee(root: Path, ends: Mapping[str, str]) -> None:
    """Says how the cells end that do not end well: the name of a function of `worker.py`."""
    (root / "ends.json").write_text(json.dumps(dict(ends)))


def cells(root: Path) -> list[str]:
    """Every cell of the project."""
    return [str(planned.cell) for planned in make_plan(_manifest(root)).cells]


def run(root: Path) -> Noted:
    """One run in this process."""
    noted = Noted()
    manifest = _manifest(root)
    worker = Path(__file__).with_name("worker.py")
    environment = make_worker_environment({**os.environ, "PYTHONPATH": str(REPOSITORY)})
    command = [sys.executable, "-m", "exporter.worker.fork_server", str(worker)]
    engine = LocalEngine(JOBS, ForkServerStarter(environment, command))
    run_plan(manifest, make_plan(manifest), engine, noted, _TODAY)
    return noted


def started(root: Path) -> subprocess.Popen[bytes]:
    """One run as a process of its own."""
    with (root / "errors.log").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.campaign", str(root)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def contents(root: Path) -> dict[str, tuple[Record, str, str]]:
    """Each record of the last run with its file and the weights beside it."""
    return contents_of(root, records(root))


def contents_of(root: Path, cells: Iterable[str]) -> dict[str, tuple[Record, str, str]]:
    """The same of some of its cells, whatever is left of the others."""
    found = {}
    known = records(root)
    for cell in cells:
        record = known[cell]
        folder = root / "build" / record.cell.model
        [weights] = record.artifact.external_data if record.artifact else ()
        files = (folder / f"{record.cell.opset}.onnx", folder / weights)
        found[cell] = (record, *(path.read_text() for path in files))
    return found


def records(root: Path) -> dict[str, Record]:
    """What the last run left, by cell."""
    return read_run(BuildFolder.from_project(_manifest(root).project).results).by_cell()


def made(root: Path) -> Counter[str]:
    """How often workers made each cell."""
    journal = root / "journal"
    return Counter(journal.read_text().split()) if journal.exists() else Counter()


def left_running(root: Path) -> list[str]:
    """The processes of workers and their children that are still there after a moment."""
    deadline = time.monotonic() + 5
    while (found := _running(root)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def tell(counts: str) -> None:
    """What was counted; `pytest -s` shows it."""
    sys.stdout.write(f"{counts}\n")


def _running(root: Path) -> list[str]:
    pids = (root / "pids").read_text().split() if (root / "pids").exists() else []
    return [pid for pid in pids if _is_alive(pid, str(root))]


def _is_alive(pid: str, root: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        # Another process may have the number by now: ours stand in the project.
        return state != "Z" and Path(f"/proc/{pid}/cwd").readlink().is_relative_to(root)
    except OSError:
        return False


def _manifest(root: Path) -> Manifest:
    shape = json.loads((root / "shape.json").read_text())
    opsets = tuple(range(7, 7 + shape["opsets"]))
    models = (
        make_spec(f"m{index:03}", opsets=opsets, timeout=shape["timeout"], seed=shape["seed"])
        for index in range(shape["models"])
    )
    return make_manifest(*models, root=str(root))


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]))
    except ExporterError as refused:
        sys.exit(f"refused: {refused}")
