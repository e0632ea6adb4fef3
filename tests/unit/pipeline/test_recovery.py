"""Finished cells of a killed run are recovered."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.jobs import Job, JobFolder, write_json
from exporter.manifest import Manifest
from exporter.pipeline.engine import JobResult
from exporter.records.record import Status
from tests.unit.pipeline.builders import (
    BuildLog,
    FakeEngine,
    Worker,
    announcement,
    export,
    finish,
    finish_with,
    format_reference,
    manifest,
    record,
    spec,
    write,
    write_reference,
)


class Killed(BaseException):
    """The end of the parent, as by a kill: no handler catches it."""


def killed_at(opset: int, reference: str = "same", content: str = "new") -> Worker:
    """Return a worker that is killed at `opset` after it wrote an unfinished record."""

    def worker(of: Job) -> JobResult:
        folder = JobFolder(Path(of.folder))
        write_json(folder.job, of)
        write_reference(of, reference)
        for cell in of.cells():
            write_json(folder.announcement, announcement([cell]))
            write(of, record(of, cell, content=content))
            if cell.opset == opset:
                raise Killed
        raise AssertionError

    return worker


def kill(of: Manifest, worker: Worker, *, force: bool = True) -> None:
    with pytest.raises(Killed):
        export(of, FakeEngine(worker), force=force)


def again(of: Manifest, worker: Worker = finish) -> tuple[BuildLog, dict[str, str]]:
    records, log = export(of, FakeEngine(worker))
    return log, records


def test_only_the_announced_cell_and_later_ones_run_again(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(18))
    log, records = again(project, finish_with("same", "later"))
    assert set(log.reasons) == {"tiny/18/cpu", "tiny/19/cpu"}
    assert log.notes == ["tiny: recovered 1 result of a killed run"]
    assert set(records.values()) == {"pass"}
    assert (tmp_path / "build/tiny/17.onnx").read_text() == "new"


def test_valid_results_of_the_build_folder_stay(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    again(project)
    kill(project, killed_at(18))
    log, records = again(project)
    assert not log.reasons
    assert len(records) == 3
    texts = [(tmp_path / f"build/tiny/{opset}.onnx").read_text() for opset in (17, 18, 19)]
    assert texts == ["new", "", ""]


def test_valid_results_have_priority_over_those_of_a_killed_run(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    again(project)
    kill(project, killed_at(18, reference="another"))
    log, _ = again(project)
    assert not log.reasons
    assert not log.notes
    assert (tmp_path / "build/tiny/reference.json").read_text() == format_reference("same")


def test_nothing_of_a_changed_entry_is_recovered(tmp_path: Path) -> None:
    kill(manifest(tmp_path), killed_at(19))
    changed = manifest(tmp_path, spec(source="other.py:Net"))
    log, _ = again(changed)
    assert len(log.reasons) == 3
    assert not log.notes


def test_nothing_of_a_removed_model_is_recovered(tmp_path: Path) -> None:
    kill(manifest(tmp_path), killed_at(19))
    log, records = again(manifest(tmp_path, spec("other")))
    assert set(records) == {f"other/{opset}/cpu" for opset in (17, 18, 19)}
    assert not log.notes


@pytest.mark.parametrize("damaged", ["at_work.json", "job.json", "records/17.cpu.json"])
@pytest.mark.parametrize("how", ["half", "gone", "link"])
def test_unreadable_results_are_rebuilt(tmp_path: Path, damaged: str, how: str) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(19))
    [left] = (tmp_path / "build/.killed").iterdir()
    path = left / damaged
    content = path.read_bytes()
    path.unlink()
    if how == "half":
        path.write_bytes(content[: len(content) // 2])
    elif how == "link":
        path.symlink_to(tmp_path / "nowhere")
    log, records = again(project)
    assert set(log.reasons) >= {"tiny/17/cpu", "tiny/19/cpu"}
    assert set(records.values()) == {"pass"}


def test_an_incomplete_file_is_rebuilt(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(19))
    [left] = (tmp_path / "build/.killed").iterdir()
    (left / "17.onnx").write_text("ne")
    log, _ = again(project)
    assert "17.onnx is not the file that was proved" in log.reasons["tiny/17/cpu"]
    assert "tiny/18/cpu" not in log.reasons


def test_a_crash_is_not_recovered(tmp_path: Path) -> None:
    project = manifest(tmp_path)

    def crashed(of: Job) -> JobResult:
        write(of, record(of, of.cells()[0], Status.CRASH))
        return killed_at(19)(of.model_copy(update={"opsets": of.opsets[1:]}))

    kill(project, crashed)
    log, _ = again(project)
    assert set(log.reasons) == {"tiny/17/cpu", "tiny/19/cpu"}


def test_a_kill_between_the_two_renames_restores_the_old_folder(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    again(project)
    away = tmp_path / "build/.work/tiny-old-abcdefgh"
    away.mkdir(parents=True)
    (tmp_path / "build/tiny").rename(away / "tiny")
    log, records = again(project)
    assert not log.reasons
    assert len(records) == 3


def test_records_behind_a_symlink_are_not_changed(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(19))
    [left] = (tmp_path / "build/.killed").iterdir()
    elsewhere = tmp_path / "elsewhere"
    (left / "records").rename(elsewhere)
    before = sorted(path.name for path in elsewhere.iterdir())
    (left / "records").symlink_to(elsewhere)
    log, _ = again(project)
    assert len(log.reasons) == 3
    assert sorted(path.name for path in elsewhere.iterdir()) == before


@pytest.mark.parametrize(("name", "note_count"), [("tiny-12345678", 1), ("other-12345678", 0)])
def test_the_name_of_the_folder_must_match_its_model(
    tmp_path: Path, name: str, note_count: int
) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(18))
    (left,) = (tmp_path / "build/.killed").iterdir()
    left.rename(left.with_name(name))
    log, records = again(project)
    assert len(log.notes) == note_count
    assert len(log.reasons) == 3 - note_count
    assert set(records.values()) == {"pass"}


def test_a_second_kill_loses_no_results(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(18))
    kill(project, killed_at(19), force=False)
    log, _ = again(project)
    assert set(log.reasons) == {"tiny/19/cpu"}
