"""What becomes of the private folders of a killed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.build import BuildFolder, BuildOptions, run_plan
from exporter.build.engine import JobResult
from exporter.jobs.job import Job
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.manifest import Manifest
from exporter.planning.plan import make_plan
from exporter.records.record import Status, read_run
from tests.unit.build.builders import (
    FakeEngine,
    Noted,
    Worker,
    announcement,
    finish,
    finish_with,
    manifest,
    record,
    spec,
    write,
    write_reference,
)
from tests.unit.build.test_pipeline import TODAY


class Killed(BaseException):
    """The end of the parent: nothing after it runs that a killed process would not run."""


def killed_at(opset: int, reference: str = "same", content: str = "new") -> Worker:
    """A run that is killed while its worker is at `opset`, with a record of it half proved."""

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
        run_plan(of, make_plan(of), FakeEngine(worker), Noted(), TODAY, BuildOptions(force=force))


def again(of: Manifest, worker: Worker = finish) -> tuple[Noted, dict[str, str]]:
    noted = Noted()
    run_plan(of, make_plan(of), FakeEngine(worker), noted, TODAY)
    build = BuildFolder.from_project(of.project)
    assert not (build.path / ".work").exists()
    assert not (build.path / ".killed").exists()
    return noted, {str(r.cell): r.status.value for r in read_run(build.results).records}


def test_only_the_cell_at_work_and_those_after_it_run_again(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(18))
    noted, found = again(project, finish_with("same", "later"))
    assert set(noted.reasons) == {"tiny/18/cpu", "tiny/19/cpu"}
    assert noted.notes == ["tiny: recovered 1 result of a killed run"]
    assert set(found.values()) == {"pass"}
    assert (tmp_path / "build/tiny/17.onnx").read_text() == "new"


def test_what_holds_in_place_stays_beside_it(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    again(project)
    kill(project, killed_at(18))
    noted, found = again(project)
    assert not noted.reasons
    assert len(found) == 3
    texts = [(tmp_path / f"build/tiny/{opset}.onnx").read_text() for opset in (17, 18, 19)]
    assert texts == ["new", "", ""]


def test_results_that_hold_are_not_given_up_for_those_of_a_killed_run(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    again(project)
    kill(project, killed_at(18, reference="another"))
    noted, _ = again(project)
    assert not noted.reasons
    assert not noted.notes
    assert (tmp_path / "build/tiny/reference.json").read_text() == "same"


def test_nothing_is_kept_of_an_entry_that_changed_meanwhile(tmp_path: Path) -> None:
    kill(manifest(tmp_path), killed_at(19))
    changed = manifest(tmp_path, spec(source="other.py:Net"))
    noted, _ = again(changed)
    assert len(noted.reasons) == 3
    assert not noted.notes


def test_nothing_is_kept_of_a_model_that_left(tmp_path: Path) -> None:
    kill(manifest(tmp_path), killed_at(19))
    noted, found = again(manifest(tmp_path, spec("other")))
    assert set(found) == {f"other/{opset}/cpu" for opset in (17, 18, 19)}
    assert not noted.notes


@pytest.mark.parametrize("damaged", ["at_work.json", "job.json", "records/17.cpu.json"])
@pytest.mark.parametrize("how", ["half", "gone", "link"])
def test_what_cannot_be_read_is_made_again(tmp_path: Path, damaged: str, how: str) -> None:
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
    noted, found = again(project)
    assert set(noted.reasons) >= {"tiny/17/cpu", "tiny/19/cpu"}
    assert set(found.values()) == {"pass"}


def test_a_file_that_was_only_half_on_the_disk_is_made_again(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(19))
    [left] = (tmp_path / "build/.killed").iterdir()
    (left / "17.onnx").write_text("ne")
    noted, _ = again(project)
    assert "17.onnx is not the file that was proved" in noted.reasons["tiny/17/cpu"]
    assert "tiny/18/cpu" not in noted.reasons


def test_a_crash_is_not_kept(tmp_path: Path) -> None:
    project = manifest(tmp_path)

    def crashed(of: Job) -> JobResult:
        write(of, record(of, of.cells()[0], Status.CRASH))
        return killed_at(19)(of.model_copy(update={"opsets": of.opsets[1:]}))

    kill(project, crashed)
    noted, _ = again(project)
    assert set(noted.reasons) == {"tiny/17/cpu", "tiny/19/cpu"}


def test_killed_between_the_two_renames_the_old_folder_comes_back(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    again(project)
    away = tmp_path / "build/.work/tiny-old-abc"
    away.mkdir(parents=True)
    (tmp_path / "build/tiny").rename(away / "tiny")
    noted, found = again(project)
    assert not noted.reasons
    assert len(found) == 3


def test_records_behind_a_link_are_not_touched(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(19))
    [left] = (tmp_path / "build/.killed").iterdir()
    elsewhere = tmp_path / "elsewhere"
    (left / "records").rename(elsewhere)
    before = sorted(path.name for path in elsewhere.iterdir())
    (left / "records").symlink_to(elsewhere)
    noted, _ = again(project)
    assert len(noted.reasons) == 3
    assert sorted(path.name for path in elsewhere.iterdir()) == before


@pytest.mark.parametrize(("name", "kept"), [("tiny-other", 1), ("other-tiny", 0), ("tiny", 0)])
def test_a_folder_is_its_model_s_by_its_name_too(tmp_path: Path, name: str, kept: int) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(18))
    (left,) = (tmp_path / "build/.killed").iterdir()
    left.rename(left.with_name(name))
    noted, found = again(project)
    assert len(noted.notes) == kept
    assert len(noted.reasons) == 3 - kept
    assert set(found.values()) == {"pass"}


def test_a_second_kill_loses_nothing_either(tmp_path: Path) -> None:
    project = manifest(tmp_path)
    kill(project, killed_at(18))
    kill(project, killed_at(19), force=False)
    noted, _ = again(project)
    assert set(noted.reasons) == {"tiny/19/cpu"}
