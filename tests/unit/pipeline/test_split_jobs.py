"""Several workers build the opsets of a model, from the tasks to the final folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.jobs import Announcement, Job, JobFolder, Reference, Sample, write_json
from exporter.manifest import Manifest, ModelSpec, Tolerance
from exporter.pipeline.build_folder import FolderRecords, carry_over
from exporter.pipeline.engine import ExitKind, JobResult
from exporter.pipeline.supervisor import join_folders
from exporter.records.record import Record, Stage, Status
from tests.unit.factory import key_by_text
from tests.unit.pipeline.builders import (
    BuildLog,
    FakeEngine,
    Worker,
    announcement,
    export,
    job,
    manifest,
    outcome,
    read_results,
    record,
    spec,
    write,
    write_reference,
)

OPSETS = tuple(range(18, 24))


def six(**values: object) -> ModelSpec:
    return spec(opsets=OPSETS, **values)


def worker(
    content: str = "new",
    reference: Callable[[Job], str] = lambda of: "same",
    status: Callable[[Job, int], Status] = lambda of, opset: Status.PASS,
) -> Worker:
    """Return a worker that records its times, which allow the next run to divide its job."""

    def work(of: Job) -> JobResult:
        write_json(JobFolder(Path(of.folder)).job, of)
        write_reference(of, reference(of))
        for cell in of.cells():
            seconds = {"capture": 1.0, "convert": 1.0, "parity": 1.0}
            result = record(of, cell, status(of, cell.opset), content)
            write(of, result.model_copy(update={"seconds": seconds}))
        write_json(JobFolder(Path(of.folder)).announcement, announcement(of.cells()[-1:]))
        return outcome(of, ExitKind.EXITED, 0, announcement(of.cells()[-1:]))

    return work


def build(
    of: Manifest, *ways: Worker, force: bool = False, workers: int = 2
) -> tuple[FakeEngine, BuildLog, dict[str, Record]]:
    engine = FakeEngine(*ways, workers=workers)
    _, log = export(of, engine, force=force)
    return engine, log, key_by_text(read_results(of).by_cell())


@pytest.fixture
def project(tmp_path: Path) -> Manifest:
    """Return a project with six cells of known times, and the files `old`."""
    of = manifest(tmp_path, six())
    build(of, worker("old"))
    return of


def killed(of: Job) -> JobResult:
    return outcome(of, ExitKind.SIGNAL, 9, announcement(of.cells()))


def statuses(records: dict[str, Record]) -> list[str]:
    return [records[f"tiny/{opset}/cpu"].status.value for opset in OPSETS]


def opsets(engine: FakeEngine) -> list[list[int]]:
    return [[opset.opset for opset in task.job.opsets] for task in engine.tasks]


def text(root: Path, opset: int) -> str:
    return (root / f"build/tiny/{opset}.onnx").read_text()


def test_a_model_with_earlier_records_is_divided_and_joined(tmp_path: Path) -> None:
    project = manifest(tmp_path, six())
    first, _, _ = build(project, worker("old"))
    assert opsets(first) == [list(OPSETS)]
    engine, log, records = build(project, worker("new"), force=True)
    assert opsets(engine) == [[18, 20, 22], [19, 21, 23]]
    assert [task.job.part for task in engine.tasks] == [0, 1]
    assert engine.tasks[0].job.folder != engine.tasks[1].job.folder
    assert statuses(records) == ["pass"] * 6
    assert {text(tmp_path, opset) for opset in OPSETS} == {"new"}
    assert {(tmp_path / f"build/tiny/{o}.onnx").stat().st_nlink for o in OPSETS} == {1}
    assert log.models == ["tiny"]
    assert log.notes == []
    assert len(log.records) == 6


def test_one_worker_divides_nothing(project: Manifest) -> None:
    engine, _, _ = build(project, worker(), force=True, workers=1)
    assert opsets(engine) == [list(OPSETS)]


def test_rechecks_of_one_part_find_their_files_after_the_end_of_the_other(tmp_path: Path) -> None:
    def rechecks(of: Job) -> JobResult:
        assert all(opset.reuse_from for opset in of.opsets)
        old = JobFolder(Path(of.build) / of.spec.id)
        assert all(old.model(opset.opset).read_text() == "old" for opset in of.opsets)
        return worker("old")(of)

    build(manifest(tmp_path, six()), worker("old"))
    edited = manifest(tmp_path, six(tolerance=Tolerance(atol=1e-3, rtol=1e-3)))
    engine, _, records = build(edited, rechecks)
    assert opsets(engine) == [[18, 20, 22], [19, 21, 23]]
    assert statuses(records) == ["pass"] * 6


def test_parts_with_different_references_are_rebuilt_by_one_worker(project: Manifest) -> None:
    engine, _, records = build(
        project, worker("new", reference=lambda of: f"part {of.part}"), force=True
    )
    # The opsets of the second part are rebuilt in the folder of the first one.
    assert opsets(engine) == [[18, 20, 22], [19, 21, 23], [19, 21, 23]]
    assert engine.tasks[2].job.folder == engine.tasks[0].job.folder
    assert engine.tasks[2].seconds == 60.0
    assert statuses(records) == ["pass"] * 6


def test_a_model_without_a_stable_reference_needs_a_limited_number_of_jobs(
    project: Manifest,
) -> None:
    numbers = iter(range(100))
    ways = worker(reference=lambda of: str(next(numbers)))
    engine, _, records = build(project, ways, force=True)
    assert len(engine.tasks) == 3
    assert statuses(records) == ["pass"] * 6


def fail(of: Job) -> JobResult:
    for cell in of.cells():
        failed = Record(
            cell=cell,
            status=Status.ERROR,
            stage=Stage.SOURCE,
            seconds={"source": 1.0, "convert": 1.0},
            fingerprint=of.make_fingerprint(cell),
        )
        write(of, failed)
    return outcome(of, ExitKind.EXITED, 0, announcement(of.cells()))


def test_parts_without_a_reference_keep_their_failures(project: Manifest) -> None:
    engine, _, records = build(project, fail, force=True)
    assert opsets(engine) == [[18, 20, 22], [19, 21, 23]]
    assert statuses(records) == ["error"] * 6


def test_a_file_is_not_carried_over_to_parts_without_a_reference(
    project: Manifest, tmp_path: Path
) -> None:
    """Files with a lost reference are not files of a failed model."""
    (tmp_path / "build/tiny/reference.json").unlink()
    engine, log, _ = build(project, fail)
    assert sorted(opset for group in opsets(engine) for opset in group) == list(OPSETS)
    assert set(log.reasons.values()) == {"tiny/reference.json is missing or damaged"}


@pytest.mark.parametrize("itself", [False, True], ids=["by the system", "by its own word"])
def test_a_killed_part_is_retried_alone(project: Manifest, *, itself: bool) -> None:
    def killed(of: Job) -> JobResult:
        if of.part == 0:
            return worker("new")(of)
        write_reference(of, "same")
        cell = of.cells()[0]
        if itself:
            write(of, record(of, cell, Status.KILLED))
            return worker("new", status=lambda _, o: Status.KILLED if o == 19 else Status.PASS)(of)
        return outcome(of, ExitKind.SIGNAL, 9, announcement([cell]))

    def alone(of: Job) -> JobResult:
        paths = [path for path in Path(of.folder).iterdir() if path.is_file()]
        assert {path.stat().st_nlink for path in paths} == {1}, "onnx refuses weights of two names"
        return worker("new")(of)

    ways = (killed, killed, alone) if itself else (killed, killed, worker("new"), alone)
    engine, log, records = build(project, *ways, force=True)
    assert opsets(engine)[-1] == [19]
    assert engine.tasks[-1].job.part == 0
    assert statuses(records) == ["pass"] * 6
    assert log.statuses() == dict.fromkeys(records, "pass")


def test_a_part_that_is_killed_alone_has_the_status_killed(project: Manifest) -> None:
    def killed_at_19(of: Job) -> JobResult:
        return worker(status=lambda _, o: Status.KILLED if o == 19 else Status.PASS)(of)

    engine, log, records = build(project, killed_at_19, force=True)
    assert opsets(engine) == [[18, 20, 22], [19, 21, 23], [19]]
    assert statuses(records) == ["pass", "killed", "pass", "pass", "pass", "pass"]
    assert log.statuses()["tiny/19/cpu"] == "killed"


def test_killed_models_run_again_alone_after_the_others(tmp_path: Path) -> None:
    """The machine has less memory than all workers together need."""
    models = [spec(name, opsets=(18,)) for name in ("a", "b", "c")]

    def die_beside_others(of: Job) -> JobResult:
        return killed(of) if len(engine.tasks) < 3 else worker()(of)

    engine = FakeEngine(die_beside_others, workers=2)
    of = manifest(tmp_path, *models)
    _, log = export(of, engine)
    order = [(task.job.spec.id, task.is_alone) for task in engine.tasks]
    assert order == [("a", False), ("b", False), ("c", False), ("a", True), ("b", True)]
    records = key_by_text(read_results(of).by_cell())
    assert {record.status for record in records.values()} == {Status.PASS}
    problem = "the worker was killed (SIGKILL, most often for its memory) while at convert"
    assert records["a/18/cpu"].notes == (f"ran again alone: beside other workers, {problem}",)
    assert records["c/18/cpu"].notes == ()
    assert log.notes[0] == f"a: 1 cell will run again alone: beside other workers, {problem}"


def test_a_model_that_is_also_killed_alone_is_red_and_says_so(tmp_path: Path) -> None:
    engine = FakeEngine(killed, workers=2)
    of = manifest(tmp_path, spec("a", opsets=(18,)), spec("b", opsets=(18,)))
    export(of, engine)
    assert len(engine.tasks) == 4
    record = key_by_text(read_results(of).by_cell())["a/18/cpu"]
    assert record.status is Status.KILLED
    assert record.notes[0].startswith("ran again alone: beside other workers, the worker")


def test_every_killed_cell_of_a_part_is_retried_alone(project: Manifest) -> None:
    engine, _, records = build(project, killed, killed, worker("new"), force=True)
    assert sorted(opsets(engine)[-1]) == list(OPSETS)
    assert statuses(records) == ["pass"] * 6


@pytest.mark.parametrize("which", [0, 1])
def test_a_part_without_results_is_rebuilt_in_the_folder_of_the_other(
    project: Manifest, tmp_path: Path, which: int
) -> None:
    def kill_one(of: Job) -> JobResult:
        return killed(of) if of.part == which else worker("new")(of)

    engine, _, records = build(project, kill_one, kill_one, worker("alone"), force=True)
    assert opsets(engine)[-1] == opsets(engine)[which]
    assert statuses(records) == ["pass"] * 6
    texts = {opset: text(tmp_path, opset) for opset in OPSETS}
    assert texts == {o: "alone" if o in opsets(engine)[which] else "new" for o in OPSETS}


def interrupt(of: Job) -> JobResult:
    return outcome(of, ExitKind.INTERRUPTED, 0, announcement(of.cells()))


def finish_and_interrupt(of: Job) -> JobResult:
    """Interrupt the run before the start of the other part."""
    worker("new")(of)
    # The record of the last announced cell does not count.
    return outcome(of, ExitKind.INTERRUPTED, 0, announcement(of.cells()[-1:]))


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        ((worker("new"), interrupt), ["new", "old", "new", "old", "new", "old"]),
        ((finish_and_interrupt,), ["new", "old", "new", "old", "old", "old"]),
        ((killed, interrupt), ["old"] * 6),
    ],
    ids=["in the other part", "before the other part", "before the retry of a killed part"],
)
def test_ctrl_c_keeps_the_finished_cells_and_the_old_ones(
    project: Manifest, tmp_path: Path, ways: tuple[Worker, ...], expected: list[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(project, *ways, force=True)
    assert [text(tmp_path, opset) for opset in OPSETS] == expected
    assert len(read_results(project).records) == 6


class Killed(BaseException):
    """The end of the parent, as by a kill: no handler catches it."""


def test_a_run_killed_in_its_second_part_keeps_the_first_part(
    project: Manifest, tmp_path: Path
) -> None:
    def kills(of: Job) -> JobResult:
        folder = JobFolder(Path(of.folder))
        write_json(folder.job, of)
        write_reference(of, "same")
        cell = of.cells()[1]
        write(of, record(of, of.cells()[0], content="new"))
        write_json(folder.announcement, Announcement(stage=Stage.CONVERT, cells=(cell,), log=""))
        raise Killed

    edited = manifest(tmp_path, six(seed=1))
    with pytest.raises(Killed):
        build(edited, worker("new"), kills)
    engine, log, records = build(edited, worker("last"))
    assert opsets(engine) == [[21, 23]]
    assert statuses(records) == ["pass"] * 6
    texts = [text(tmp_path, opset) for opset in OPSETS]
    assert texts == ["new", "new", "new", "last", "new", "last"]
    assert len(log.notes) == 2


def part(folder: Path, opset: int, *, exact: bool) -> JobFolder:
    """Return the folder of a job with one opset and a reference."""
    sample = Sample(index=0, name="declared", kind="declared", axes={}, exact=exact)
    reference = Reference(samples=(sample,), noise=(1e-7,), output_spread=(1.0,))
    of = job(folder, spec(opsets=(opset,)))
    write(of, record(of, of.cells()[0]))
    write_json(JobFolder(folder).reference, reference)
    return JobFolder(folder)


@pytest.mark.parametrize("exact", [0, 1])
def test_the_part_with_float64_outputs_is_the_main_part(tmp_path: Path, exact: int) -> None:
    parts = [part(tmp_path / str(n), 18 + n, exact=n == exact) for n in (0, 1)]
    joined, dropped = join_folders([FolderRecords(each) for each in parts])
    assert joined.folder == parts[exact]
    assert dropped == []
    assert key_by_text(joined.folder.read_records()).keys() == {"tiny/18/cpu", "tiny/19/cpu"}
    assert not parts[1 - exact].path.exists()


def test_a_part_with_a_removed_folder_loses_only_its_own_cells(tmp_path: Path) -> None:
    parts = [part(tmp_path / str(n), 18 + n, exact=n == 0) for n in (0, 1)]
    elsewhere = tmp_path / "elsewhere"
    parts[0].path.rename(elsewhere)
    parts[0].path.symlink_to(elsewhere)
    joined, dropped = join_folders([FolderRecords(each) for each in parts])
    assert dropped == []
    assert not joined.folder.path.is_symlink()
    assert key_by_text(joined.folder.read_records()).keys() == {"tiny/19/cpu"}
    assert key_by_text(JobFolder(elsewhere).read_records()).keys() == {"tiny/18/cpu"}


def failed(folder: Path, opset: int) -> JobFolder:
    """Return the folder of a failed job without a reference."""
    of = job(folder, spec(opsets=(opset,)))
    write(of, Record(cell=of.cells()[0], status=Status.CRASH))
    return JobFolder(folder)


@pytest.mark.parametrize("first", [True, False])
def test_a_failure_is_joined_with_the_results_of_another_part(
    tmp_path: Path, *, first: bool
) -> None:
    parts = [failed(tmp_path / "failed", 18), part(tmp_path / "made", 19, exact=False)]
    joined, dropped = join_folders([FolderRecords(p) for p in (parts if first else parts[::-1])])
    assert joined.folder == parts[1]
    assert dropped == []
    assert {n: r.status for n, r in key_by_text(joined.folder.read_records()).items()} == {
        "tiny/18/cpu": Status.CRASH,
        "tiny/19/cpu": Status.PASS,
    }


def test_a_failure_of_an_earlier_run_is_not_carried_over_to_new_results(tmp_path: Path) -> None:
    old, fresh = failed(tmp_path / "failed", 18), part(tmp_path / "made", 19, exact=False)
    [dropped] = carry_over(FolderRecords(old), FolderRecords(fresh), lambda _: True)
    assert str(dropped.cell) == "tiny/18/cpu"
    assert key_by_text(fresh.read_records()).keys() == {"tiny/19/cpu"}
