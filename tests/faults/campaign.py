"""Create a project of many quick models without torch, and build it in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from exporter.core.errors import ExporterError
from exporter.manifest import Manifest
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.engine import LocalEngine
from exporter.planning.plan import make_plan
from exporter.processes import ForkServerStarter, make_worker_environment
from exporter.program import run_plan
from exporter.records.record import Record, read_run
from tests.unit.factory import key_by_text, make_manifest, make_spec
from tests.unit.pipeline.builders import BuildLog

REPOSITORY = Path(__file__).parents[2]
JOBS = 2


def make_project(
    root: Path,
    *,
    models: int,
    opsets: int,
    timeout: float = 60.0,
    pause: float = 0.0,
    seed: int = 0,
) -> None:
    """Create a project of sound models. Another seed makes all results stale."""
    root.mkdir(parents=True, exist_ok=True)
    shape = {"models": models, "opsets": opsets, "timeout": timeout, "pause": pause, "seed": seed}
    (root / "shape.json").write_text(json.dumps(shape))
    set_failures(root, {})


def set_failures(root: Path, ends: Mapping[str, str]) -> None:
    """Write how cells fail: each by the name of a function in `worker.py`."""
    (root / "ends.json").write_text(json.dumps(dict(ends)))


def cells(root: Path) -> list[str]:
    """Return all cells of the project."""
    return [str(planned.cell) for planned in make_plan(read_manifest(root)).cells]


def run(root: Path) -> BuildLog:
    """Run the build in this process."""
    log = BuildLog()
    manifest = read_manifest(root)
    worker = Path(__file__).with_name("worker.py")
    environment = make_worker_environment({**os.environ, "PYTHONPATH": str(REPOSITORY)})
    command = [sys.executable, "-m", "exporter.worker.fork_server", str(worker)]
    plain = [sys.executable, str(worker)]
    engine = LocalEngine(JOBS, ForkServerStarter(environment, command, plain))
    run_plan(manifest, make_plan(manifest), engine, log)
    return log


def start(root: Path) -> subprocess.Popen[bytes]:
    """Start the build in a new process."""
    with (root / "errors.log").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.campaign", str(root)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def contents(root: Path) -> dict[str, tuple[Record, str, str]]:
    """Return each record of the last run with its file and weights."""
    return contents_of(root, records(root))


def contents_of(root: Path, cells: Iterable[str]) -> dict[str, tuple[Record, str, str]]:
    """Return the same for some cells. Files of other cells may be missing."""
    contents = {}
    results = records(root)
    for cell in cells:
        record = results[cell]
        folder = root / "build" / record.cell.model
        [weights] = record.artifact.external_data if record.artifact else ()
        files = (folder / f"{record.cell.opset}.onnx", folder / weights)
        contents[cell] = (record, *(path.read_text() for path in files))
    return contents


def records(root: Path) -> dict[str, Record]:
    """Return the records of the last run by cell."""
    run = read_run(BuildFolder.from_project(read_manifest(root).project).results)
    return key_by_text(run.by_cell())


def count_built(root: Path) -> Counter[str]:
    """Count how often workers built each cell."""
    journal = root / "journal"
    return Counter(journal.read_text().split()) if journal.exists() else Counter()


def find_running(root: Path) -> list[str]:
    """Return the processes of workers and their children that did not end in time."""
    deadline = time.monotonic() + 5
    while (running := _running(root)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return running


def print_counts(counts: str) -> None:
    """Print counts, which `pytest -s` shows."""
    sys.stdout.write(f"{counts}\n")


def _running(root: Path) -> list[str]:
    pids = (root / "pids").read_text().split() if (root / "pids").exists() else []
    return [pid for pid in pids if _is_alive(pid, str(root))]


def _is_alive(pid: str, root: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        # Another process may have the same ID. Ours run in the project folder.
        return state != "Z" and Path(f"/proc/{pid}/cwd").readlink().is_relative_to(root)
    except OSError:
        return False


def read_manifest(root: Path) -> Manifest:
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
