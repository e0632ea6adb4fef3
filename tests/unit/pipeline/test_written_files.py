"""Files of the user in a folder of a model, with and without a list of what exports wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs import Job, JobFolder, write_json
from exporter.pipeline.engine import JobResult
from exporter.pipeline.written_files import find_foreign_path, write_list
from tests.unit.pipeline.builders import (
    FakeEngine,
    announcement,
    export,
    finish,
    job,
    manifest,
    record,
    spec,
    write,
    write_reference,
)


def make_result(path: Path, *, has_list: bool) -> Path:
    """Create the folder of a model as this release or the first one writes it."""
    of = job(path, spec(opsets=(17, 18)))
    write_reference(of, "same")
    for cell in of.cells():
        write(of, record(of, cell))
    folder = JobFolder(path)
    for file in (
        folder.log(17),
        folder.artifacts(17) / "report.md",
        folder.sample(0) / "input_0.pb",
        folder.weight(0),
        folder.announcement,
        folder.contract,
        path / "weights-0123456789abcdef.safetensors",
        path / ".17.onnx.99.fresh",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    write_json(folder.job, of)
    if has_list:
        write_list(path, path.name)
    return path


with_and_without = pytest.mark.parametrize("has_list", [True, False], ids=["list", "first release"])


@with_and_without
def test_a_folder_of_an_export_contains_nothing_else(tmp_path: Path, has_list: bool) -> None:
    assert find_foreign_path(make_result(tmp_path / "tiny", has_list=has_list)) is None
    assert find_foreign_path(tmp_path / "missing") is None
    (tmp_path / "empty").mkdir()
    assert find_foreign_path(tmp_path / "empty") is None


@with_and_without
@pytest.mark.parametrize(
    "name", ["model.safetensors", "notes/a.txt", "records/notes.txt", "19.pt", os.fsdecode(b"\xff")]
)
def test_a_file_of_the_user_beside_those_of_an_export_is_found(
    tmp_path: Path, has_list: bool, name: str
) -> None:
    folder = make_result(tmp_path / "tiny", has_list=has_list)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("precious")
    found = find_foreign_path(folder)
    assert found in (name, f"{name.partition('/')[0]}/", "\\xff")


@pytest.mark.parametrize("name", ["logs/mine.txt", "test_data_set_0/mine.npy", "20.onnx"])
def test_a_list_finds_files_with_names_of_an_export(tmp_path: Path, name: str) -> None:
    folder = make_result(tmp_path / "tiny", has_list=True)
    (folder / name).write_text("precious")
    assert find_foreign_path(folder) == name


def test_external_data_of_any_name_belongs_to_the_record_that_names_it(tmp_path: Path) -> None:
    folder = make_result(tmp_path / "tiny", has_list=False)
    (folder / "model.onnx.data").touch()
    assert find_foreign_path(folder) == "model.onnx.data"
    of = job(folder, spec(opsets=(17,)))
    value = record(of, of.cells()[0])
    assert value.artifact is not None
    artifact = value.artifact.model_copy(update={"external_data": ("model.onnx.data",)})
    write(of, value.model_copy(update={"artifact": artifact}))
    assert find_foreign_path(folder) is None


def test_a_file_and_a_folder_of_the_same_name_differ(tmp_path: Path) -> None:
    folder = make_result(tmp_path / "tiny", has_list=True)
    shutil.rmtree(folder / "logs")
    (folder / "logs").write_text("precious")
    assert find_foreign_path(folder) == "logs"


@with_and_without
def test_a_copy_with_another_name_belongs_to_the_user(tmp_path: Path, has_list: bool) -> None:
    folder = make_result(tmp_path / "tiny", has_list=has_list)
    shutil.copytree(folder, tmp_path / "backup")
    assert find_foreign_path(tmp_path / "backup") == ""
    assert find_foreign_path(folder) is None


def test_a_copied_list_or_job_does_not_make_a_folder_one_of_an_export(tmp_path: Path) -> None:
    folder = make_result(tmp_path / "a/tiny", has_list=True)
    for name in ("written.json", "job.json"):
        mine = tmp_path / name / "tiny"
        mine.mkdir(parents=True)
        (mine / "model.safetensors").write_text("precious")
        shutil.copy(folder / name, mine)
        assert find_foreign_path(mine) == "model.safetensors"


def test_a_link_and_a_file_are_no_folders_of_an_export(tmp_path: Path) -> None:
    folder = make_result(tmp_path / "a/tiny", has_list=True)
    (tmp_path / "tiny").symlink_to(folder)
    assert find_foreign_path(tmp_path / "tiny") == ""
    (tmp_path / "file").touch()
    assert find_foreign_path(tmp_path / "file") == ""


def put_weights(build: Path) -> Path:
    return build / "tiny/model.safetensors"


def put_results(build: Path) -> Path:
    return build / "results.json"


def put_private(build: Path) -> Path:
    return build / ".work/notes.txt"


def put_page(build: Path) -> Path:
    return build / "gate.md/notes.txt"


@pytest.mark.parametrize("put", [put_weights, put_results, put_private, put_page])
def test_an_export_ends_before_its_first_job(tmp_path: Path, put: Callable[[Path], Path]) -> None:
    path = put(tmp_path / "build")
    path.parent.mkdir(parents=True)
    path.write_text('{"precious": 1}')
    engine = FakeEngine(finish)
    for _ in range(2):  # the first run does not make the folder its own
        with pytest.raises(ExporterError, match="was not written by an export; move it") as caught:
            export(manifest(tmp_path), engine)
        assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert engine.tasks == []
    assert path.read_text() == '{"precious": 1}'
    shutil.rmtree(path.parent)
    assert set(export(manifest(tmp_path), engine)[0].values()) == {"pass"}
    assert set(export(manifest(tmp_path), engine)[0].values()) == {"pass"}


def test_a_file_that_appears_during_the_run_stays(tmp_path: Path) -> None:
    mine = tmp_path / "build/tiny/mine"

    def write_beside(of: Job) -> JobResult:
        mine.parent.mkdir()
        mine.touch()
        folder = JobFolder(Path(of.folder))
        write_json(folder.job, of)
        write_json(folder.announcement, announcement(of.cells()[-1:]))
        return finish(of)

    with pytest.raises(ExporterError, match=r"/tiny: was not written by an export"):
        export(manifest(tmp_path), FakeEngine(write_beside))
    assert mine.exists()
    mine.unlink()
    engine = FakeEngine(finish)  # the results were kept, except that of the last announcement
    assert set(export(manifest(tmp_path), engine)[0].values()) == {"pass"}
    [task] = engine.tasks
    assert [str(cell) for cell in task.job.cells()] == ["tiny/19/cpu"]


def test_a_copy_of_a_build_folder_without_hidden_files_is_replaced(tmp_path: Path) -> None:
    export(manifest(tmp_path), FakeEngine(finish))
    (tmp_path / "build/.lock").unlink()
    (tmp_path / "build/gate.md").write_text("of a gate")
    assert set(export(manifest(tmp_path), FakeEngine(finish))[0].values()) == {"pass"}
