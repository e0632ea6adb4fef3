"""Cells are restored if their inputs are the same, and only then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.jobs import Job, JobFolder
from exporter.manifest import Manifest, Tolerance
from exporter.pipeline.build_folder import BuildFolder, StoredRecords
from exporter.pipeline.decisions import BuildOptions, RecordValidator, decide
from exporter.pipeline.engine import ExitKind, JobResult
from exporter.planning.plan import make_plan
from exporter.records.record import Record, Source, Status, read_run
from exporter.store import Store, StoreLimits
from tests.unit.factory import key_by_text
from tests.unit.pipeline.builders import (
    BuildLog,
    FakeEngine,
    export,
    format_reference,
    manifest,
    outcome,
    spec,
    write,
)
from tests.unit.pipeline.test_build import as_asked, never
from tests.unit.pipeline.test_increments import STATE, Project

LIMITS = StoreLimits(size=1 << 30, age=3600.0)


def start(root: Path, store: Path | None = None) -> Project:
    """Return an exported checkout."""
    root.mkdir(exist_ok=True)
    project = Project(root, Store(store or root / "store", LIMITS))
    project.put("torch", STATE["torch"])
    project.export()
    return project


def list_built(project: Project) -> list[str]:
    return [str(cell) for task in project.engine.tasks for cell in task.job.cells()]


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted((root / "build").rglob("*"))
        if path.is_file() and path.name not in ("stamps.json", ".lock")
    }


def without_jobs(results: dict[str, bytes]) -> dict[str, bytes]:
    """Drop the jobs and the lists of files, because each run has other cells and logs."""
    names = ("/job.json", "/written.json")
    return {name: data for name, data in results.items() if not name.endswith(names)}


def test_an_undone_edit_builds_nothing(tmp_path: Path) -> None:
    project = start(tmp_path)
    first = files(tmp_path)
    project.put("net.py", "2")
    project.export()
    assert list_built(project) == ["a/17/cpu", "a/18/cpu"]
    assert without_jobs(files(tmp_path)) != without_jobs(first)
    project.put("net.py", "1")
    project.export()
    assert list_built(project) == []
    assert project.on_note.hits == {"a/17/cpu": "net.py changed", "a/18/cpu": "net.py changed"}
    assert without_jobs(files(tmp_path)) == without_jobs(first)
    project.export()
    assert (list_built(project), project.on_note.hits) == ([], {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tolerance", Tolerance(atol=1e-3, rtol=1e-3)),
        ("source", "net.py:Other"),
        ("torch", "2.13.0 bb"),
        ("opsets", (17, 18, 19)),
        ("net.pt", "2"),
    ],
)
def test_every_kind_of_undone_edit_is_restored(tmp_path: Path, name: str, value: Any) -> None:
    project = start(tmp_path)
    expected = project.export()
    for state, runs in ((value, True), (STATE[name], False), (value, False)):
        project.put(name, state)
        results = project.export()
        assert bool(list_built(project)) is runs
        assert (results == expected) is (state == STATE[name])


def test_missing_cells_are_built_and_others_restored(tmp_path: Path) -> None:
    project = start(tmp_path)
    project.put("net.py", "2")
    project.export("a/17")
    project.put("net.py", "1")
    project.export()
    project.put("net.py", "2")
    results = project.export()
    assert (list(project.on_note.hits), list_built(project)) == (["a/17/cpu"], ["a/18/cpu"])
    assert results == project.export(name="nothing")


def test_valid_results_of_the_build_folder_have_priority(tmp_path: Path) -> None:
    """PyTorch on another machine may differ in the last digit."""
    first = start(tmp_path / "one", tmp_path / "store")
    other = Project(tmp_path / "two", Store(tmp_path / "store", LIMITS))
    other.root.mkdir()
    other.put("torch", STATE["torch"])
    other.store, shared = None, other.store
    other.export("a/17")
    (other.root / "build/a/reference.json").write_text(format_reference("another digit"))
    before = (other.root / "build/a/17.onnx").stat().st_ino
    other.store = shared
    other.export("a/18")
    assert list_built(other)[:1] == ["a/18/cpu"]
    assert other.on_note.reasons["a/18/cpu"] == (
        "it has not been exported yet, "
        "and its store entry does not match the other results of the model"
    )
    assert before
    assert first.export() == other.export()


def test_force_and_no_store_ignore_the_store(tmp_path: Path) -> None:
    project = start(tmp_path)
    engine = FakeEngine(project.work)
    export(project.manifest(), engine, store=project.store, force=True)
    assert len(engine.tasks) == 2
    shutil.rmtree(tmp_path / "build")
    project.store = None
    project.export()
    assert len(list_built(project)) == 4


def test_forced_results_are_stored(tmp_path: Path) -> None:
    project = start(tmp_path, tmp_path / "store")
    shutil.rmtree(tmp_path / "store")
    export(project.manifest(), FakeEngine(project.work), store=project.store, force=True)
    assert list_built(start(tmp_path / "two", tmp_path / "store")) != []
    assert len(list((tmp_path / "store/entries").rglob("*.json"))) > 0


class UnusableStore(Store):
    """Raises an error at every use."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the store is used for {name}")


def test_an_export_without_work_does_not_read_the_store(tmp_path: Path) -> None:
    project = start(tmp_path)
    project.store = UnusableStore.__new__(UnusableStore)
    project.export()
    assert list_built(project) == []
    project.put("net.py", "2")
    with pytest.raises(AssertionError, match="the store is used for find_hits"):
        project.export()


def test_the_plan_has_the_same_decisions_and_changes_nothing(tmp_path: Path) -> None:
    project = start(tmp_path)
    project.put("source", "net.py:Other")
    project.export("a/17")
    project.put("source", STATE["source"])
    project.export()
    project.put("source", "net.py:Other")
    before = files(tmp_path)
    of = project.manifest()
    stored = StoredRecords(BuildFolder.from_project(of.project))
    options = BuildOptions(store=project.store)
    with project.patch_process():
        results = decide(make_plan(of), stored, RecordValidator(of), options)
    hits = key_by_text(results.hits)
    assert list(hits) == ["a/17/cpu"]
    assert hits["a/17/cpu"] == "its manifest entry changed"
    assert key_by_text(results.reasons) == {"a/18/cpu": "its manifest entry changed"}
    assert files(tmp_path) == before


# --- results that are not stored


def entries(root: Path) -> list[Path]:
    return sorted((root / "store/entries").rglob("*.json"))


def run(of: Manifest, worker: Callable[[Job], JobResult], root: Path, **options: bool) -> BuildLog:
    return export(of, FakeEngine(worker), store=Store(root / "store", LIMITS), **options)[1]


def ends_as(status: Status, **fields: Any) -> Callable[[Job], JobResult]:
    def worker(of: Job) -> JobResult:
        for cell in of.cells():
            value = Record(
                cell=cell, status=status, fingerprint=of.make_fingerprint(cell), **fields
            )
            write(of, value)
        return outcome(of, ExitKind.EXITED, 0)

    return worker


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.INCONCLUSIVE, Status.ERROR])
def test_a_result_that_depends_on_the_machine_is_not_stored(tmp_path: Path, status: Status) -> None:
    run(manifest(tmp_path), ends_as(status), tmp_path)
    assert entries(tmp_path) == []


def test_a_deterministic_failure_is_stored(tmp_path: Path) -> None:
    of = manifest(tmp_path, spec(opsets=(18,)))
    run(of, ends_as(Status.FAIL, message="parity"), tmp_path)
    shutil.rmtree(tmp_path / "build")
    log = run(of, never, tmp_path)
    assert list(log.hits) == ["tiny/18/cpu"]
    [result] = read_run(tmp_path / "build/results.json").records
    assert (result.status, result.message) == (Status.FAIL, "parity")


@pytest.mark.parametrize("when", ["seen by the worker", "after it"])
def test_nothing_is_stored_if_a_source_changed_during_the_job(tmp_path: Path, when: str) -> None:
    project = Project(tmp_path, Store(tmp_path / "store", LIMITS))
    project.put("torch", STATE["torch"])
    honest = project.work

    def edited(of: Job) -> JobResult:
        ended = honest(of)
        if of.spec.id == "a" and when == "after it":
            (tmp_path / "net.py").write_text("edited")
        elif of.spec.id == "a":
            for record in JobFolder(Path(of.folder)).read_records().values():
                unsure = tuple(Source(file=s.file, state="") for s in record.sources)
                write(of, record.model_copy(update={"sources": unsure}))
        return ended

    project.work = edited
    project.export()
    assert len(entries(tmp_path)) == 2, "those of the other model"
    project.work = honest
    project.put("net.py", "1")
    shutil.rmtree(tmp_path / "build")
    project.export()
    assert list_built(project) == ["a/17/cpu", "a/18/cpu"]


def test_nothing_is_stored_if_a_tool_changed_during_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.program.have_tools_changed", lambda: True)
    start(tmp_path)
    assert entries(tmp_path) == []


def test_a_thorough_result_satisfies_both_options_and_a_default_one_does_not(
    tmp_path: Path,
) -> None:
    of = manifest(tmp_path, spec(opsets=(18,)))
    run(of, as_asked, tmp_path)
    run(of, as_asked, tmp_path, thorough=True)
    [usual, thorough] = sorted(entries(tmp_path), key=lambda path: path.stat().st_mtime_ns)
    for stored, removed, is_valid in ((thorough, usual, True), (usual, thorough, False)):
        root = tmp_path / stored.stem
        root.mkdir()
        shutil.copytree(tmp_path / "store", root / "store")
        (root / "store" / removed.relative_to(tmp_path / "store")).unlink()
        checkout = manifest(root, spec(opsets=(18,)))
        assert bool(run(checkout, as_asked, root, thorough=True).hits) is is_valid
        shutil.rmtree(root / "build")
        assert run(checkout, never, root).hits, "both results satisfy the default options"
