from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter import program
from exporter.cache.states import hash_source, read_package_state
from exporter.core.errors import RESULTS_NOTE, ExitCode, ExporterError, StoppedByFailure
from exporter.jobs import Job, JobFolder, write_json
from exporter.manifest import Device, Expectation, Link, Manifest, RuntimeEnvironment, Skip
from exporter.pipeline.build_folder import BuildFolder, StoredRecords
from exporter.pipeline.decisions import (
    RecordValidator,
    collect_results,
    filter_valid_results,
)
from exporter.pipeline.engine import ExitKind, JobResult
from exporter.planning.plan import make_plan
from exporter.program import run_plan
from exporter.records.record import Record, Status
from exporter.report.reports_folder import write_reports
from exporter.store import Store, StoreLimits
from tests.unit.factory import key_by_text
from tests.unit.pipeline.builders import (
    BuildLog,
    FakeEngine,
    Worker,
    announcement,
    die_at,
    export,
    finish,
    finish_with,
    manifest,
    outcome,
    read_results,
    record,
    spec,
    write,
    write_reference,
)


def test_every_cell_of_every_model_is_recorded_in_order(tmp_path: Path) -> None:
    project = manifest(tmp_path, spec("b"), spec("a"))
    results, log = export(project, FakeEngine(finish))
    assert results == {f"{model}/{opset}/cpu": "pass" for model in "ab" for opset in (17, 18, 19)}
    assert list(results) == sorted(results)
    assert log.models == ["b", "a"]
    assert log.statuses() == results
    assert (tmp_path / "build/a/18.onnx").exists()


def test_templates_are_loaded_only_if_a_cell_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, loaded = manifest(tmp_path, spec("a")), list[str]()
    monkeypatch.setattr(program, "preload_pages", lambda of: loaded.append(of.reports))
    for _ in range(2):
        export(project, FakeEngine(finish))
    assert loaded == ["reports"]


def test_a_record_that_is_stale_after_its_own_export_is_reported_as_a_bug(tmp_path: Path) -> None:
    def work(of: Job) -> JobResult:
        write_reference(of, "same")
        for cell in of.cells():
            states = {"pytest": "1.0 ff" if cell.opset == 17 else read_package_state("pytest")}
            write(of, record(of, cell).model_copy(update={"packages": states}))
        return outcome(of, ExitKind.EXITED, 0, announcement(of.cells()[-1:]))

    results, log = export(manifest(tmp_path), FakeEngine(work))
    assert results == {"tiny/18/cpu": "pass", "tiny/19/cpu": "pass"}
    version, digest = read_package_state("pytest").split(" ")
    reason = f"pytest 1.0 -> {version} since it was exported"
    states = f"recorded as pytest `1.0 ff`, now `{version} {digest}`"
    fix = "unless it changed in this run, report this as a bug"
    assert log.notes == [f"tiny/17/cpu: no result, since {reason}; {states}; {fix}"]


def crash_at_once(of: Job) -> JobResult:
    return outcome(of, ExitKind.EXITED, 0, announcement(of.cells()[:1]))


@pytest.mark.parametrize(
    ("ways", "statuses", "opsets"),
    [
        ((die_at(18), finish), "pass crash pass", [[17, 18, 19], [19]]),
        ((die_at(18, ExitKind.TIMEOUT),), "pass timeout timeout", [[17, 18, 19]]),
        ((crash_at_once,), "crash crash crash", [[17, 18, 19], [18, 19], [19]]),
        # the code of an unusable environment
        ((die_at(17, ExitKind.EXITED, 4), finish), "crash pass pass", [[17, 18, 19], [18, 19]]),
    ],
)
def test_a_dead_worker_fails_one_cell_and_a_timeout_the_rest(
    tmp_path: Path, ways: tuple[Worker, ...], statuses: str, opsets: list[list[int]]
) -> None:
    engine = FakeEngine(*ways)
    results, log = export(manifest(tmp_path), engine)
    assert list(results.values()) == statuses.split()
    assert log.statuses() == results
    assert [[cell.opset for cell in task.job.cells()] for task in engine.tasks] == opsets
    assert len({task.job.folder for task in engine.tasks}) == 1


def test_a_job_whose_build_folder_is_removed_runs_again(tmp_path: Path) -> None:
    def lose_folder(of: Job) -> JobResult:
        die_at(18)(of)
        shutil.rmtree(of.build)
        return outcome(of, ExitKind.EXITED, 1, announcement(of.cells()[1:2]))

    engine = FakeEngine(lose_folder, finish)
    results, _ = export(manifest(tmp_path), engine)
    assert results == dict.fromkeys(results, "pass")
    assert len(engine.tasks[1].job.cells()) == 3

    always = FakeEngine(lose_folder)
    results, _ = export(manifest(tmp_path / "other"), always)
    assert set(results.values()) == {"crash"}


def test_a_job_that_removes_its_folder_before_it_writes_runs_once(tmp_path: Path) -> None:
    def start_again(of: Job) -> JobResult:
        shutil.rmtree(of.folder)
        return finish(of)

    engine = FakeEngine(start_again)
    results, _ = export(manifest(tmp_path), engine)
    assert results == dict.fromkeys(results, "pass")
    assert len(engine.tasks) == 1


def test_a_folder_that_a_model_creates_in_place_of_the_results_is_replaced(tmp_path: Path) -> None:
    def create_folders(of: Job) -> JobResult:
        for name in ("results.json", "stamps.json"):
            (Path(of.build) / name / "inner").mkdir(parents=True)
        return finish(of)

    results, _ = export(manifest(tmp_path), FakeEngine(create_folders))
    assert set(results.values()) == {"pass"}
    assert not (tmp_path / "build/stamps.json").is_dir()


def test_retries_share_the_time_of_the_model(tmp_path: Path) -> None:
    def slow(of: Job) -> JobResult:
        return outcome(of, ExitKind.SIGNAL, 11, announcement(of.cells()[:1]), seconds=25.0)

    engine = FakeEngine(slow)
    results, _ = export(manifest(tmp_path), engine)
    assert set(results.values()) == {"crash"}
    assert [task.seconds for task in engine.tasks] == [60.0, 35.0, 10.0]


def test_an_unusable_environment_stops_the_run_with_its_message(tmp_path: Path) -> None:
    def unable(of: Job) -> JobResult:
        log = JobFolder(Path(of.folder)).log(None)
        log.parent.mkdir()
        log.write_text("the worker cannot start: No module named 'torch'\n")
        return outcome(of, ExitKind.EXITED, 4)

    with pytest.raises(ExporterError, match="No module named 'torch'") as caught:
        export(manifest(tmp_path), FakeEngine(unable))
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_ctrl_c_keeps_finished_results_and_no_unproved_file(tmp_path: Path) -> None:
    def interrupted(of: Job) -> JobResult:
        ended = die_at(18, ExitKind.INTERRUPTED)(of)
        JobFolder(Path(of.folder)).model(18).write_text("half")
        return ended

    log = BuildLog()
    project = manifest(tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_plan(project, make_plan(project), FakeEngine(interrupted), log)
    assert caught.value.__notes__ == [RESULTS_NOTE]
    assert log.statuses() == {"tiny/17/cpu": "pass"}
    assert [str(r.cell) for r in read_results(project).records] == ["tiny/17/cpu"]
    assert (tmp_path / "build/tiny/17.onnx").exists()
    assert not (tmp_path / "build/tiny/18.onnx").exists()


def test_ctrl_c_before_a_result_keeps_nothing(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_plan(
            project, make_plan(project), FakeEngine(die_at(17, ExitKind.INTERRUPTED)), BuildLog()
        )
    assert not getattr(caught.value, "__notes__", ())


def fail_at_18(of: Job) -> JobResult:
    for cell in of.cells():
        status = Status.ERROR if cell.opset == 18 else Status.PASS
        write(of, record(of, cell, status))
    return outcome(of, ExitKind.EXITED, 0)


def test_a_red_cell_stops_the_build_when_its_model_is_in_place(tmp_path: Path) -> None:
    expected = spec("b", expect=(Expectation(opsets=(18,), reason="known"),))
    project = manifest(tmp_path, spec("a"), expected, spec("c"), spec("d"))
    engine = FakeEngine(finish, fail_at_18, fail_at_18, finish)
    with pytest.raises(StoppedByFailure, match="c/18/cpu"):
        export(project, engine, fail_fast=True)
    statuses = {str(each.cell): each.status.value for each in read_results(project).records}
    assert (statuses["b/18/cpu"], statuses["c/18/cpu"]) == ("xfail", "error")
    assert len(statuses) == 9  # of the last model, none


@pytest.fixture
def project(tmp_path: Path) -> Manifest:
    """Return a project with three proved cells."""
    of = manifest(tmp_path)
    export(of, FakeEngine(finish))
    return of


def test_ctrl_c_before_the_first_cell_keeps_the_old_results(project: Manifest) -> None:
    with pytest.raises(KeyboardInterrupt):
        export(project, FakeEngine(die_at(17, ExitKind.INTERRUPTED)), force=True)
    assert len(read_results(project).records) == 3


def test_a_selection_keeps_the_other_opsets_of_the_same_model(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    export(project, FakeEngine(finish_with("same", content="old")))
    results, log = export(
        project, FakeEngine(finish_with("same", content="new")), "*/18", force=True
    )
    assert set(results.values()) == {"pass"}
    assert len(results) == 3
    assert not log.notes
    texts = {path.name: path.read_text() for path in (tmp_path / "build/tiny").glob("*.onnx")}
    assert texts == {"17.onnx": "old", "18.onnx": "new", "19.onnx": "old"}


def test_a_selection_drops_the_other_opsets_if_the_reference_changed(
    tmp_path: Path,
) -> None:
    project = manifest(tmp_path)
    export(project, FakeEngine(finish_with("before")))
    results, log = export(project, FakeEngine(finish_with("after")), "*/18", force=True)
    assert results == {"tiny/18/cpu": "pass"}
    assert log.notes == ["tiny: 2 earlier results are stale and were dropped"]
    assert [path.name for path in (tmp_path / "build/tiny").glob("*.onnx")] == ["18.onnx"]


@pytest.mark.parametrize(("content", "is_kept"), [("one", True), ("two", False)])
def test_the_record_of_another_device_is_carried_over_only_for_the_same_file(
    tmp_path: Path, content: str, is_kept: bool
) -> None:
    project = manifest(tmp_path, spec(devices=("cpu", "reference"), opsets=(18,)))
    export(project, FakeEngine(finish_with("same", content="one")))
    engine = FakeEngine(finish_with("same", content=content))
    results, _ = export(project, engine, "*/*/cpu", force=True)
    assert ("tiny/18/reference" in results) == is_kept


def test_a_changed_entry_makes_all_records_stale(tmp_path: Path) -> None:
    export(manifest(tmp_path), FakeEngine(finish))
    changed = manifest(tmp_path, spec(seed=1))
    results, _ = export(changed, FakeEngine(finish), "*/18")
    assert results == {"tiny/18/cpu": "pass"}


def never(of: Job) -> JobResult:
    """Fail, because no worker should run."""
    raise AssertionError(f"{of.spec.id} runs")


def test_unchanged_cells_are_reused(project: Manifest) -> None:
    before = {str(r.cell): r.status.value for r in read_results(project).records}
    again, log = export(project, FakeEngine(never))
    assert again == before
    assert (log.reasons, log.models) == ({}, [])


def test_one_more_opset_exports_that_one(tmp_path: Path) -> None:
    export(manifest(tmp_path), FakeEngine(finish))
    engine = FakeEngine(finish)
    results, log = export(manifest(tmp_path, spec(opsets=(17, 18, 19, 20))), engine)
    assert set(results.values()) == {"pass"}
    assert log.reasons == {"tiny/20/cpu": "it has not been exported yet"}
    assert [[cell.opset for cell in task.job.cells()] for task in engine.tasks] == [[20]]
    assert len(list((tmp_path / "build/tiny").glob("*.onnx"))) == 4


def test_a_deterministic_failure_is_reused(tmp_path: Path) -> None:
    def write_failure(of: Job) -> JobResult:
        write_reference(of, "same")
        for cell in of.cells():
            write(of, record(of, cell, Status.FAIL))
        return outcome(of, ExitKind.EXITED, 0)

    project = manifest(tmp_path)
    export(project, FakeEngine(write_failure))
    results, _ = export(project, FakeEngine(never))
    assert set(results.values()) == {"fail"}


def test_a_changed_or_missing_file_is_rebuilt(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    export(project, FakeEngine(finish_with("same", content="proved")))
    (tmp_path / "build/tiny/17.onnx").write_text("another")
    (tmp_path / "build/tiny/18.onnx").unlink()
    results, log = export(project, FakeEngine(finish_with("same", content="proved")))
    assert set(results.values()) == {"pass"}
    assert log.reasons == {
        "tiny/17/cpu": "tiny/17.onnx is not the file that was proved",
        "tiny/18/cpu": "tiny/18.onnx is missing",
    }
    assert {p.read_text() for p in (tmp_path / "build/tiny").glob("*.onnx")} == {"proved"}


def test_a_changed_file_of_an_unselected_cell_loses_its_result(tmp_path: Path) -> None:
    project = manifest(tmp_path, spec("tiny"), spec("other"))
    export(project, FakeEngine(finish_with("same", content="proved")))
    (tmp_path / "build/tiny/17.onnx").write_text("another")
    elsewhere, _ = export(project, FakeEngine(finish), "other", force=True)
    assert "tiny/17/cpu" not in elsewhere
    assert "tiny/18/cpu" in elsewhere
    engine = FakeEngine(finish_with("same", content="proved"))
    selected, _ = export(project, engine, "tiny/18", force=True)
    assert "tiny/17/cpu" not in selected
    all_results, log = export(project, engine)
    assert len(all_results) == 6
    assert list(log.reasons) == ["tiny/17/cpu"]


def test_results_that_cannot_be_carried_over_are_rebuilt(tmp_path: Path) -> None:
    export(manifest(tmp_path, spec(opsets=(17, 18))), FakeEngine(finish_with("before")))
    engine = FakeEngine(finish_with("after"))
    results, log = export(manifest(tmp_path), engine)
    assert results == {f"tiny/{opset}/cpu": "pass" for opset in (17, 18, 19)}
    assert [[cell.opset for cell in task.job.cells()] for task in engine.tasks] == [[19], [17, 18]]
    assert log.notes == []


def test_jobs_of_unknown_length_start_first_and_then_the_longest(tmp_path: Path) -> None:
    def slow_b(of: Job) -> JobResult:
        for cell in of.cells():
            seconds = {"convert": 9.0 if of.spec.id == "b" else 1.0}
            write(of, record(of, cell).model_copy(update={"seconds": seconds}))
        return outcome(of, ExitKind.EXITED, 0)

    export(manifest(tmp_path, spec("a"), spec("b")), FakeEngine(slow_b))
    engine = FakeEngine(slow_b)
    export(manifest(tmp_path, spec("a"), spec("b"), spec("c")), engine, force=True)
    assert [task.job.spec.id for task in engine.tasks] == ["c", "b", "a"]


def test_skipped_cells_are_records_with_their_reason_and_are_not_run(tmp_path: Path) -> None:
    project = manifest(tmp_path, spec(skip=(Skip(opsets=(17,), reason="too old"),)))
    engine = FakeEngine(finish)
    results, _ = export(project, engine)
    assert results["tiny/17/cpu"] == "skip"
    assert [cell.opset for cell in engine.tasks[0].job.cells()] == [18, 19]
    by_cell = key_by_text(read_results(project).by_cell())
    assert by_cell["tiny/17/cpu"].message == "too old"


def test_a_skip_that_was_removed_from_the_manifest_has_no_result(tmp_path: Path) -> None:
    project = manifest(tmp_path, spec(skip=(Skip(opsets=(17,), reason="too old"),)))
    export(project, FakeEngine(finish))
    run = read_results(project)
    assert not filter_valid_results(run, project, make_plan(project)).missing
    promised = manifest(tmp_path)
    missing = filter_valid_results(run, promised, make_plan(promised)).missing
    assert list(key_by_text(missing)) == ["tiny/17/cpu"]


def test_opsets_beyond_a_pinned_runtime_are_records_without_a_job(tmp_path: Path) -> None:
    environment = RuntimeEnvironment(name="old", requirements=("onnxruntime==1.12.*",))
    device = Device(name="old", runtime="onnxruntime", environment=environment)
    of = manifest(tmp_path, spec(devices=("cpu", "old"), opsets=(18,)))
    devices = (device, *of.project.devices)
    project = of.model_copy(update={"project": of.project.model_copy(update={"devices": devices})})
    engine = FakeEngine(finish)
    results, _ = export(project, engine)
    assert results == {"tiny/18/cpu": "pass", "tiny/18/old": "unavailable"}
    assert [str(cell) for task in engine.tasks for cell in task.job.cells()] == ["tiny/18/cpu"]
    run = read_results(project)
    assert run.records[1].message == "ONNX Runtime 1.12 loads opsets up to 17"
    assert not filter_valid_results(run, project, make_plan(project)).missing


def test_expectations_are_applied_when_results_are_collected(tmp_path: Path) -> None:
    expect = (Expectation(opsets=(18,), reason="no such operator"),)
    project = manifest(tmp_path, spec(expect=expect))
    results, log = export(project, FakeEngine(fail_at_18))
    assert results["tiny/18/cpu"] == "xfail"
    assert log.statuses() == results
    # The record on disk has no expectations applied: another one needs no export.
    plan = make_plan(manifest(tmp_path))
    run = collect_results(
        plan,
        StoredRecords(BuildFolder.from_project(project.project)),
        RecordValidator(manifest(tmp_path)),
    ).run
    assert key_by_text(run.by_cell())["tiny/18/cpu"].status is Status.ERROR


def test_read_results_of_a_chain_agree_with_the_expectations_of_its_links(tmp_path: Path) -> None:
    expect = (Expectation(opsets=(17, 18), reason="no such operator"),)
    chain = (Link(id="tiny", inputs={}, outputs={}),)
    project = manifest(tmp_path, spec("whole", chain=chain, expect=expect), spec(expect=expect))
    results, _ = export(project, FakeEngine(fail_at_18))
    assert (results["tiny/17/cpu"], results["tiny/18/cpu"]) == ("xpass", "xfail")
    run = read_results(project)
    assert not filter_valid_results(run, project, make_plan(project)).missing


def test_a_failure_without_a_diagnosis_runs_again_if_it_is_foreseen_no_more(
    tmp_path: Path,
) -> None:
    def fail(of: Job) -> JobResult:
        write_reference(of, "same")
        for cell in of.cells():
            fields = {"undiagnosed": bool(of.spec.expect)}
            write(of, record(of, cell, Status.ERROR).model_copy(update=fields))
        return outcome(of, ExitKind.EXITED, 0)

    expect = (Expectation(opsets=(17, 18, 19), reason="no such operator"),)
    engine = FakeEngine(fail)
    for items, count, reasons in (
        (expect, 1, {"it has not been exported yet"}),
        (expect, 1, set()),
        ((), 2, {"its failure is not as foreseen, and its cause was not searched"}),
        ((), 2, set()),
        (expect, 2, set()),
    ):
        _, log = export(manifest(tmp_path, spec(expect=items)), engine)
        assert (len(engine.tasks), set(log.reasons.values())) == (count, reasons)


def test_results_of_a_changed_model_are_missing_with_a_reason(
    project: Manifest, tmp_path: Path
) -> None:
    run = read_results(project)
    assert not filter_valid_results(run, project, make_plan(project)).missing
    changed = manifest(tmp_path, spec(seed=1, opsets=(17, 20)))
    results = filter_valid_results(run, changed, make_plan(changed))
    missing = key_by_text(results.missing)
    assert missing["tiny/17/cpu"].startswith("its manifest entry changed")
    assert missing["tiny/20/cpu"] == "the last export left no current result of it"
    assert "tiny/17/cpu" not in key_by_text(results.run.by_cell())


def test_results_need_the_files_beside_the_project(project: Manifest, tmp_path: Path) -> None:
    beside = Path(project.project.root).parent / "shared.txt"
    beside.write_text("one")
    packages = {"../shared.txt": f"file {hash_source(beside)}", "other": "1.0", "/x": "file 0"}
    run = read_results(project)
    records = tuple(r.model_copy(update={"packages": packages}) for r in run.records)
    run = run.model_copy(update={"records": records})
    assert not filter_valid_results(run, project, make_plan(project)).missing
    beside.write_text("two")
    missing = filter_valid_results(run, project, make_plan(project)).missing
    assert set(missing.values()) == {"../shared.txt changed since it was exported"}
    assert len(missing) == len(records)


def test_other_tools_do_not_invalidate_read_results(project: Manifest) -> None:
    run = read_results(project)
    records = [
        r.model_copy(update={"fingerprint": {**r.fingerprint, "tool.torch": "x"}})
        for r in run.records
    ]
    other = run.model_copy(update={"records": tuple(records)})
    assert not filter_valid_results(other, project, make_plan(project)).missing


def prove_shortly(status: Status) -> Worker:
    """Return a worker whose later devices rely on the first one; `status`: that of the first."""

    def worker(of: Job) -> JobResult:
        write_reference(of, "same")
        for opset in of.opsets:
            first, *others = of.list_opset_cells(opset)
            write(of, record(of, first, status))
            for cell in others:
                proof = first.device if status is Status.PASS else ""
                write(of, record(of, cell).model_copy(update={"proved_on": proof}))
        return outcome(of, ExitKind.EXITED, 0)

    return worker


@pytest.mark.parametrize("has_store", [False, True])
@pytest.mark.parametrize(
    ("devices", "selection", "status", "built"),
    [
        (("cpu", "reference"), "", Status.PASS, []),
        (("cpu", "reference", "other"), "", Status.PASS, ["other"]),
        (("reference",), "", Status.PASS, ["reference"]),
        (("reference", "cpu"), "", Status.PASS, ["reference"]),
        (("cpu", "reference"), "*/*/cpu", Status.PASS, []),
        (("cpu", "reference"), "*/*/cpu", Status.FAIL, ["reference"]),
    ],
    ids=["same", "added", "removed", "reordered", "proved again", "red now"],
)
def test_a_short_proof_is_valid_as_long_as_the_proof_it_relies_on(
    devices: tuple[str, ...],
    selection: str,
    status: Status,
    built: list[str],
    has_store: bool,
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store", StoreLimits(size=1 << 30, age=3600.0))
    first = manifest(tmp_path, spec(devices=("cpu", "reference"), opsets=(18,)))
    worker = prove_shortly(Status.PASS)
    export(first, FakeEngine(worker), store=store if has_store else None)
    if selection:
        export(first, FakeEngine(prove_shortly(status)), selection, force=True)
    changed = manifest(tmp_path, spec(devices=devices, opsets=(18,)))
    read = filter_valid_results(read_results(first), changed, make_plan(changed))
    reused = {str(cell.device) for cell in read.run.by_cell()}
    assert set(devices) - reused == {*built}
    if has_store:  # the build folder of another checkout is empty
        shutil.rmtree(tmp_path / "build")
    engine = FakeEngine(worker)
    results, _ = export(changed, engine, store=store if has_store else None)
    assert set(results) == {f"tiny/18/{device}" for device in devices}
    names = [str(cell.device) for task in engine.tasks for cell in task.job.cells()]
    assert (has_store and status is Status.FAIL) or names == built


def as_asked(of: Job) -> JobResult:
    """Prove as thoroughly as the job requires."""
    write_reference(of, "same")
    for cell in of.cells():
        fields = {"thorough": of.spec.thorough, "fingerprint": of.make_fingerprint(cell)}
        write(of, record(of, cell).model_copy(update=fields))
    return outcome(of, ExitKind.EXITED, 0)


def test_the_thorough_option_runs_other_cells_and_its_results_stay(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    export(project, FakeEngine(as_asked))
    engine = FakeEngine(as_asked)
    _, log = export(project, engine, "*/18", thorough=True)
    assert log.reasons == {"tiny/18/cpu": "it was not proved thoroughly"}
    assert engine.tasks[0].job.spec.thorough
    records = key_by_text(read_results(project).by_cell())
    assert {name: each.thorough for name, each in records.items()} == {
        "tiny/17/cpu": False,
        "tiny/18/cpu": True,
        "tiny/19/cpu": False,
    }
    for options in ({}, {"thorough": True}):
        _, log = export(project, FakeEngine(as_asked), "*/18", **options)
        assert log.reasons == {}, "a thorough result is good for both"


def test_a_thorough_entry_needs_thorough_results(tmp_path: Path) -> None:
    export(manifest(tmp_path), FakeEngine(as_asked))
    engine = FakeEngine(as_asked)
    _, log = export(manifest(tmp_path, spec(thorough=True)), engine)
    assert set(log.reasons.values()) == {"it was not proved thoroughly"}
    assert len(log.reasons) == 3


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each record is parsed, by cell."""
    reads: Counter[str] = Counter()
    read_record = Record.read.__func__  # type: ignore[attr-defined]  # a class method

    def read(cls: type[Record], data: bytes) -> Record:
        record = read_record(cls, data)
        reads[str(record.cell)] += 1
        return record

    monkeypatch.setattr(Record, "read", classmethod(read))
    return reads


def test_each_record_is_read_once(
    project: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(monkeypatch)
    export(project, FakeEngine(never))
    assert reads == {f"tiny/{opset}/cpu": 1 for opset in (17, 18, 19)}
    (tmp_path / "build/tiny/18.onnx").unlink()
    reads.clear()
    export(project, FakeEngine(finish))
    # The old record, the new one as the engine reports it, and the new one when the job has ended.
    assert reads == {"tiny/17/cpu": 1, "tiny/18/cpu": 3, "tiny/19/cpu": 1}


CHANGED_OUTPUTS: dict[str, Callable[[Path], object]] = {
    "file": lambda build: (build / "tiny/18.onnx").write_text("edit"),
    "record": lambda build: edit_record(build / "tiny/records/18.cpu.json"),
    "no record": lambda build: (build / "tiny/records/18.cpu.json").unlink(),
    "reference": lambda build: (build / "tiny/reference.json").write_text("{}"),
    "results": lambda build: (build / "results.json").write_text("{}"),
    "page": lambda build: (build.parent / "reports/COMPATIBILITY.md").write_text("edit"),
}


def edit_record(path: Path) -> None:
    """Write a record with another result and a right digest."""
    record = Record.read(path.read_bytes())
    write_json(path, record.model_copy(update={"notes": ("edit",)}))


@pytest.mark.parametrize("name", [None, *CHANGED_OUTPUTS])
def test_the_next_export_runs_nothing_unless_an_output_changed(
    tmp_path: Path, name: str | None
) -> None:
    of = manifest(tmp_path)
    plan = make_plan(of)
    results = run_plan(of, plan, FakeEngine(finish), BuildLog())
    write_reports(of, results.run)
    if name:
        CHANGED_OUTPUTS[name](tmp_path / "build")
    assert program._is_up_to_date(of, plan, results) == (name is None)
