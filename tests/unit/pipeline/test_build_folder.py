from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.jobs import JobFolder, Reference, Sample, write_json
from exporter.pipeline.build_folder import (
    BuildFolder,
    FolderRecords,
    carry_over,
    remove_unrecorded_files,
)
from exporter.planning.plan import remove_shard_note
from exporter.records.record import Record
from tests.unit.factory import key_by_text
from tests.unit.pipeline.builders import job, record, spec, write, write_reference


def test_a_second_run_is_refused_while_one_has_the_lock(tmp_path: Path) -> None:
    build = BuildFolder(tmp_path / "build")
    with (
        build.lock(),
        pytest.raises(ExporterError, match="another run") as caught,
        build.lock(),
    ):
        pass
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
    with build.lock():
        assert build.create_folder("tiny").path.is_dir()


def test_folders_of_a_killed_run_with_records_are_kept(tmp_path: Path) -> None:
    for name in ("tiny-abc/18.onnx", "tiny-def/records/18.cpu.json"):
        left = tmp_path / ".work" / name
        left.parent.mkdir(parents=True)
        left.write_text("half")
    build = BuildFolder(tmp_path)
    with build.lock():
        assert [path.name for path in build.list_abandoned()] == ["tiny-def"]
        build.remove_abandoned()
        assert build.list_abandoned() == []


def test_a_new_folder_replaces_all_files_of_a_model(tmp_path: Path) -> None:
    build = BuildFolder(tmp_path)
    with build.lock():
        for name in ("old", "new"):
            fresh = build.create_folder("tiny")
            (fresh.path / name).write_text(name)
            build.replace_model("tiny", fresh)
    assert [path.name for path in build.model_folder("tiny").path.iterdir()] == ["new"]


def test_a_failed_rename_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = BuildFolder(tmp_path)
    with build.lock():
        fresh = build.create_folder("tiny")
        (fresh.path / "old").touch()
        build.replace_model("tiny", fresh)
        gone = build.create_folder("tiny")
        real = Path.rename

        def rename(self: Path, target: Path) -> Path:
            if self == gone.path:
                raise OSError("no")
            return real(self, target)

        monkeypatch.setattr(Path, "rename", rename)
        with pytest.raises(OSError, match="no"):
            build.replace_model("tiny", gone)
    assert (tmp_path / "tiny/old").exists()


@pytest.mark.parametrize("name", ["", ".work", "tiny"])
def test_nothing_is_written_through_a_symlink(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    link = tmp_path / "build" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    build = BuildFolder(tmp_path / "build")
    with pytest.raises(ExporterError, match="is a symlink"), build.lock():
        build.replace_model("tiny", build.create_folder("tiny"))
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]


def test_only_files_with_a_record_stay(tmp_path: Path) -> None:
    of = job(tmp_path / "tiny", spec())
    write(of, record(of, of.cells()[0]))
    for name in ("18.onnx", "017.onnx", "x.onnx"):
        (tmp_path / "tiny" / name).touch()
    remove_unrecorded_files(FolderRecords(JobFolder(tmp_path / "tiny")))
    assert [path.name for path in (tmp_path / "tiny").glob("*.onnx")] == ["17.onnx"]


def make_folder(path: Path, opsets: tuple[int, ...], **names: str) -> JobFolder:
    """Create a folder with records, ONNX files and external data."""
    of = job(path, spec(opsets=opsets))
    write_reference(of, names.get("reference", "same"))
    for cell in of.cells():
        value = record(of, cell)
        assert value.artifact is not None
        artifact = value.artifact.model_copy(update={"external_data": (names["data"],)})
        write(of, value.model_copy(update={"artifact": artifact}))
    (path / "weights-1.data").write_text("weights")
    JobFolder(path).log(opsets[0]).parent.mkdir()
    JobFolder(path).log(opsets[0]).write_text("log")
    return JobFolder(path)


def always(record: Record) -> bool:
    return True


def test_files_weights_and_logs_are_carried_over_and_the_old_folder_stays_complete(
    tmp_path: Path,
) -> None:
    old = make_folder(tmp_path / "old", (9, 10), data="weights-1.data")
    fresh = make_folder(tmp_path / "fresh", (18,), data="weights-1.data")
    before = sorted(path.name for path in old.path.rglob("*"))
    assert carry_over(FolderRecords(old), FolderRecords(fresh), always) == []
    assert {"9.onnx", "10.onnx", "18.onnx"} <= {path.name for path in fresh.path.iterdir()}
    assert fresh.log(9).read_text() == "log"
    assert len(fresh.read_records()) == 3
    assert sorted(path.name for path in old.path.rglob("*")) == before


@pytest.mark.parametrize("data", ["gone.data", "../secret", "link.data"])
def test_a_record_with_a_missing_or_linked_file_is_dropped(tmp_path: Path, data: str) -> None:
    (tmp_path / "secret").write_text("secret")
    old = make_folder(tmp_path / "old", (9,), data=data)
    (old.path / "link.data").symlink_to(tmp_path / "secret")
    fresh = make_folder(tmp_path / "fresh", (18,), data="weights-1.data")
    assert [
        record.cell.opset for record in carry_over(FolderRecords(old), FolderRecords(fresh), always)
    ] == [9]
    assert not (fresh.path / "9.onnx").exists()
    assert not (fresh.path / data).exists() or data == "../secret"


def test_a_stale_record_is_dropped(tmp_path: Path) -> None:
    old = make_folder(tmp_path / "old", (9,), data="weights-1.data")
    fresh = make_folder(tmp_path / "fresh", (18,), data="weights-1.data")
    assert len(carry_over(FolderRecords(old), FolderRecords(fresh), lambda record: False)) == 1
    assert not (fresh.path / "9.onnx").exists()


def test_without_references_files_are_dropped(tmp_path: Path) -> None:
    old = make_folder(tmp_path / "old", (9,), data="weights-1.data")
    fresh = make_folder(tmp_path / "fresh", (18,), data="weights-1.data")
    fresh.reference.unlink()
    old.reference.unlink()
    assert len(carry_over(FolderRecords(old), FolderRecords(fresh), always)) == 1


def test_damaged_records_are_ignored(tmp_path: Path) -> None:
    old = make_folder(tmp_path / "old", (9,), data="weights-1.data")
    (old.records / "9.cpu.json").write_text("{")
    fresh = make_folder(tmp_path / "fresh", (18,), data="weights-1.data")
    assert carry_over(FolderRecords(old), FolderRecords(fresh), always) == []
    assert set(key_by_text(fresh.read_records())) == {"tiny/18/cpu"}


def test_the_new_record_has_priority(tmp_path: Path) -> None:
    old = make_folder(tmp_path / "old", (18,), data="weights-1.data")
    [stored] = old.read_records().values()
    write_json(old.record(stored.cell), stored.model_copy(update={"message": "old"}))
    fresh = make_folder(tmp_path / "fresh", (18,), data="weights-1.data")
    assert carry_over(FolderRecords(old), FolderRecords(fresh), always) == []
    assert key_by_text(fresh.read_records())["tiny/18/cpu"].message == ""


def make_reference(*names: str, scale: float = 1.0, exact: bool = True, **fields: Any) -> str:
    """Return a reference with these samples."""
    samples = [
        Sample(index=index, name=name, kind="axis", axes={"n": 3}, scales=(scale,), exact=exact)
        for index, name in enumerate(names)
    ]
    reference = Reference(samples=tuple(samples), noise=(1e-7,), output_spread=(1.0,))
    return reference.model_copy(update=fields).to_json()


@pytest.mark.parametrize(
    ("before", "now", "stays"),
    [
        (make_reference("a", "b"), make_reference("a", "b", exact=False), True),
        (make_reference("a"), make_reference("a", "b", "c"), True),
        (make_reference("a", "b"), make_reference("a"), True),
        (make_reference("a"), make_reference("a", scale=2.0), False),
        (make_reference("a"), make_reference("a", unstable="it differs"), False),
        (make_reference("a"), make_reference("b"), False),
        (make_reference("a"), "no JSON", False),
    ],
)
def test_a_reference_with_other_samples_of_the_same_model_drops_nothing(
    tmp_path: Path, before: str, now: str, stays: bool
) -> None:
    old = make_folder(tmp_path / "old", (9,), data="weights-1.data", reference=before)
    fresh = make_folder(tmp_path / "fresh", (18,), data="weights-1.data", reference=now)
    assert (carry_over(FolderRecords(old), FolderRecords(fresh), always) == []) is stays
    assert (fresh.path / "9.onnx").exists() is stays


def test_reports_of_the_exporter_are_carried_over_with_their_opset(tmp_path: Path) -> None:
    old = make_folder(tmp_path / "old", (9,), data="weights-1.data")
    fresh = make_folder(tmp_path / "fresh", (18,), data="weights-1.data")
    old.artifacts(9).mkdir(parents=True)
    (old.artifacts(9) / "report.md").write_text("said")
    (old.artifacts(9) / "link.md").symlink_to(tmp_path / "elsewhere")
    assert carry_over(FolderRecords(old), FolderRecords(fresh), always) == []
    assert [path.name for path in fresh.artifacts(9).iterdir()] == ["report.md"]


def test_a_file_with_the_path_of_the_build_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("mine")
    for path in (tmp_path / "build", tmp_path / "build" / "below"):
        with (
            pytest.raises(ExporterError, match="is not a folder") as caught,
            BuildFolder(path).lock(),
        ):
            pass
        assert caught.value.exit_code is ExitCode.ENVIRONMENT
    assert (tmp_path / "build").read_text() == "mine"


@pytest.mark.parametrize("name", [".lock", ".work", ".killed", "shard.json"])
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_other_files_with_the_names_of_private_ones(tmp_path: Path, name: str, kind: str) -> None:
    build, elsewhere = tmp_path / "build", tmp_path / "elsewhere"
    build.mkdir()
    elsewhere.mkdir()
    path = build / name
    if kind == "file":
        path.write_text("nothing of ours")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(elsewhere)
    bad = {(".lock", "folder"), (".lock", "link"), (".work", "link"), (".killed", "link")}
    if (name, kind) in bad | {("shard.json", "folder")}:
        with pytest.raises(ExporterError, match=rf"{name}: (is a symlink|cannot be)"):
            lock_and_leave(build)
        assert path.is_symlink() or path.is_dir()
    else:
        lock_and_leave(build)
        lock_and_leave(build)
    assert list(elsewhere.iterdir()) == []


def lock_and_leave(build: Path) -> None:
    """Simulate a run that is killed with a finished cell."""
    remove_shard_note(build)
    with suppress(KeyboardInterrupt), BuildFolder(build).lock():
        fresh = BuildFolder(build).create_folder("tiny")
        fresh.records.mkdir()
        (fresh.records / "17.cpu.json").touch()
        raise KeyboardInterrupt
    [left] = BuildFolder(build).list_abandoned()
    assert left.name.startswith("tiny-")
    BuildFolder(build).remove_abandoned()


def test_a_symlink_with_the_path_of_a_model_is_refused_before_its_job(tmp_path: Path) -> None:
    build = BuildFolder(tmp_path / "build")
    with build.lock():
        build.model_folder("tiny").path.symlink_to(tmp_path)
        with pytest.raises(ExporterError, match="tiny: is a symlink"):
            build.create_folder("tiny")


def test_a_file_with_the_path_of_the_build_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("no folder")
    remove_shard_note(tmp_path / "build")
    with (
        pytest.raises(ExporterError, match="is not a folder"),
        BuildFolder(tmp_path / "build").lock(),
    ):
        pass
