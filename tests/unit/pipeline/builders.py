"""A small project, and workers that run in memory."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.jobs import Announcement, Job, JobFolder, OpsetJob, Reference, write_json
from exporter.manifest import Manifest, ModelSpec
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import BuildOptions, Decisions
from exporter.pipeline.engine import ExitKind, JobEvents, JobResult, Task
from exporter.pipeline.supervisor import BuildObserver
from exporter.planning import Selection
from exporter.planning.plan import choose_route, make_plan
from exporter.program import run_plan
from exporter.records.record import CellId, Record, RunRecord, Stage, Status, read_run
from tests.unit.factory import key_by_text, make_artifact, make_manifest, make_spec


def spec(id: str = "tiny", **values: Any) -> ModelSpec:
    """Return a model with the opsets 17 to 19 and a time limit of a minute."""
    return make_spec(id, **{"opsets": (17, 18, 19), "timeout": 60.0, **values})


def manifest(root: Path, *models: ModelSpec) -> Manifest:
    return make_manifest(*(models or (spec(),)), root=str(root))


def read_results(of: Manifest) -> RunRecord:
    return read_run(BuildFolder.from_project(of.project).results)


def job(folder: Path, of: ModelSpec) -> Job:
    """Return the job for every cell of the model."""
    project = make_manifest(of).project
    devices = tuple(project.find_device(name) for name in of.devices)
    return Job(
        spec=of,
        root=str(folder.parent),
        build=str(folder.parent),
        folder=str(folder),
        opsets=tuple(
            OpsetJob(opset=opset, route=choose_route(of, opset), devices=devices)
            for opset in of.opsets
        ),
    )


def record(of: Job, cell: CellId, status: Status = Status.PASS, content: str = "") -> Record:
    """Return the record of a cell, and write its file."""
    folder = JobFolder(Path(of.folder))
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.model(cell.opset).write_text(content)
    digest = hashlib.sha256(content.encode()).hexdigest()
    artifact = make_artifact(cell.model, cell.opset, sha256=digest)
    return Record(
        cell=cell, status=status, artifact=artifact, fingerprint=of.make_fingerprint(cell)
    )


def announcement(
    cells: Sequence[CellId], stage: Stage = Stage.CONVERT, *, is_diagnosis: bool = False
) -> Announcement:
    log = "tiny/logs/model.log"
    return Announcement(stage=stage, cells=tuple(cells), log=log, is_diagnosis=is_diagnosis)


def outcome(
    of: Job,
    ended: ExitKind,
    code: int = 0,
    at_work: Announcement | None = None,
    seconds: float = 1.0,
) -> JobResult:
    return JobResult(job=of, exit_kind=ended, code=code, last_announcement=at_work, seconds=seconds)


Worker = Callable[[Job], JobResult]


class FakeEngine:
    """Runs each job by the next of `ways`. The last one is used for all later jobs."""

    def __init__(self, *ways: Worker, workers: int = 1) -> None:
        self._ways = list(ways)
        self.workers = self.local_workers = workers
        self.tasks: list[Task] = []

    def run(self, tasks: deque[Task], listener: JobEvents) -> Generator[JobResult, None, None]:
        while tasks:
            task = tasks.popleft()
            self.tasks.append(task)
            write_json(JobFolder(Path(task.job.folder)).job, task.job)
            worker = self._ways.pop(0) if len(self._ways) > 1 else self._ways[0]
            ended = worker(task.job)
            at_work = ended.last_announcement.cells if ended.last_announcement else ()
            for record_of_cell in JobFolder(Path(task.job.folder)).read_records().values():
                if record_of_cell.cell not in at_work and record_of_cell.cell in task.job.cells():
                    listener.on_record(record_of_cell)
            yield replace(ended, has_company=self.workers > 1 and not task.is_alone)
            if ended.exit_kind is ExitKind.INTERRUPTED:
                raise KeyboardInterrupt


def finish(of: Job) -> JobResult:
    return finish_with("same")(of)


def finish_with(reference: str, content: str = "") -> Worker:
    """Return a worker that proves all cells with this reference."""

    def worker(of: Job) -> JobResult:
        write_reference(of, reference)
        for cell in of.cells():
            write(of, record(of, cell, content=content))
        return outcome(of, ExitKind.EXITED, 0, announcement(of.cells()[-1:]))

    return worker


def die_at(opset: int, ended: ExitKind = ExitKind.SIGNAL, code: int = 11) -> Worker:
    """Return a worker that ends during the conversion for `opset`."""

    def worker(of: Job) -> JobResult:
        write_reference(of, "same")
        for cell in of.cells():
            if cell.opset == opset:
                return outcome(of, ended, code, announcement([cell]))
            write(of, record(of, cell))
        return outcome(of, ExitKind.EXITED, 0)

    return worker


def write(of: Job, value: Record) -> None:
    write_json(JobFolder(Path(of.folder)).record(value.cell), value)


def format_reference(text: str) -> str:
    """Return a reference without samples; other texts give others."""
    return Reference(samples=(), noise=(), output_spread=(), unstable=text).to_json()


def write_reference(of: Job, text: str) -> None:
    folder = JobFolder(Path(of.folder))
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.reference.write_text(text if text.startswith("{") else format_reference(text))


class BuildLog(BuildObserver):
    """Stores all events."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.hits: dict[str, str] = {}
        self.records: list[Record] = []
        self.models: list[str] = []
        self.notes: list[str] = []

    def on_decisions(self, decisions: Decisions) -> None:
        self.reasons = key_by_text(decisions.reasons)
        self.hits = {str(cell): hit for cell, hit in decisions.hits.items()}

    def on_announcement(self, announcement: Announcement) -> None:
        pass

    def on_cell_done(self, record: Record) -> None:
        self.records.append(record)

    def on_model_done(self, model: str) -> None:
        self.models.append(model)

    def on_note(self, message: str) -> None:
        self.notes.append(message)

    def statuses(self) -> dict[str, str]:
        return {str(record.cell): record.status.value for record in self.records}


def export(
    of: Manifest, engine: FakeEngine, *patterns: str, **options: Any
) -> tuple[dict[str, str], BuildLog]:
    """Run the build. Return the statuses in `results.json` and the events."""
    log = BuildLog()
    run_plan(of, make_plan(of, Selection(patterns=patterns)), engine, log, BuildOptions(**options))
    build = BuildFolder.from_project(of.project)
    assert not (build.path / ".work").exists()
    assert not (build.path / ".killed").exists()
    return {str(r.cell): r.status.value for r in read_run(build.results).records}, log
