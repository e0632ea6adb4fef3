from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from exporter.commands.doctor.doctor import examine_build
from exporter.commands.gc.garbage import find_garbage, remove_garbage
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import list_inaccessible, make_accessible, remove_folder
from exporter.jobs import Job, JobFolder, Reference, Sample, write_json
from exporter.pipeline.build_folder import (
    BuildFolder,
    FolderRecords,
    carry_over,
    remove_unrecorded_files,
    repair_folder,
)
from exporter.pipeline.engine import JobResult
from exporter.store import Store, StoreLimits
from tests.unit.factory import key_by_text, make_record
from tests.unit.pipeline.builders import (
    FakeEngine,
    export,
    job,
    manifest,
    record,
    spec,
    write,
    write_reference,
)
from tests.unit.pipeline.test_corrupted_build import assert_complete, rebuild, worker


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
    for name in ("tiny-abcdefgh/18.onnx", "tiny-ijklmnop/records/18.cpu.json"):
        left = tmp_path / ".work" / name
        left.parent.mkdir(parents=True)
        left.write_text("half")
    (tmp_path / ".lock").touch()
    build = BuildFolder(tmp_path)
    with build.lock():
        assert [path.name for path in build.list_abandoned()] == ["tiny-ijklmnop"]
        build.remove_abandoned()
        assert build.list_abandoned() == []


@pytest.mark.parametrize("folder", [".work", ".killed"])
@pytest.mark.parametrize("name", ["notes.txt", "mine/notes.txt", "mine/records/18.cpu.json"])
def test_files_of_the_user_in_a_hidden_folder_stay(tmp_path: Path, folder: str, name: str) -> None:
    (tmp_path / ".lock").touch()
    notes = tmp_path / folder / name
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    build = BuildFolder(tmp_path)
    for _ in range(2):
        with suppress(KeyboardInterrupt), build.lock():
            assert build.list_abandoned() == []
            build.remove_abandoned()
            build.create_folder("tiny").records.mkdir()
            raise KeyboardInterrupt
        assert notes.read_text() == "mine"
        assert not [*tmp_path.glob(".work/tiny-*")]


@pytest.mark.parametrize("name", [".work", ".killed"])
def test_a_file_in_place_of_a_hidden_folder_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / name).write_text("mine")
    build = BuildFolder(tmp_path)
    with pytest.raises(ExporterError, match=f"{name}: was not written by an export"), build.lock():
        pass
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("name", [".work/notes", ".hidden", ".notes/mine", "notes", ".lock/mine"])
def test_a_part_with_a_file_of_the_user_is_no_garbage(tmp_path: Path, name: str) -> None:
    build = BuildFolder(tmp_path)
    part = build.get_part("old")
    with part.lock():
        part.replace_model("tiny", part.create_folder("tiny"))
    assert build.find_foreign_path(part.path) is None
    if name.startswith(".lock"):
        (part.path / ".lock").unlink()
    (part.path / name).parent.mkdir(exist_ok=True)
    (part.path / name).write_text("mine")
    found = build.find_foreign_path(part.path)
    assert found is not None
    assert found.is_relative_to(part.path)


def test_a_page_that_is_written_first_blocks_no_export(tmp_path: Path) -> None:
    build = BuildFolder(tmp_path / "build")
    build.write_page("gate.md", "no results yet")
    assert {path.name for path in build.path.iterdir()} == {".gitignore", ".lock", "gate.md"}
    with build.lock():
        build.create_folder("tiny")
    build.write_page("gate.md", "green")
    assert (build.path / "gate.md").read_text() == "green"


def test_a_page_replaces_no_file_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "gate.md").write_text("mine")
    with pytest.raises(ExporterError, match=r"gate\.md: was not written by an export"):
        BuildFolder(tmp_path).write_page("gate.md", "green")
    assert [path.name for path in tmp_path.iterdir()] == ["gate.md"]
    assert (tmp_path / "gate.md").read_text() == "mine"


def test_a_new_folder_replaces_all_files_of_a_model(tmp_path: Path) -> None:
    build = BuildFolder(tmp_path)
    with build.lock():
        for name in ("old", "new"):
            fresh = build.create_folder("tiny")
            (fresh.path / name).write_text(name)
            build.replace_model("tiny", fresh)
    assert {path.name for path in build.model_folder("tiny").path.iterdir()} == {
        "new",
        "written.json",
    }


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


def make_folder(
    path: Path, *opsets: int, reference: str = "same", data: str = "weights-1.data"
) -> JobFolder:
    of = job(path, spec(opsets=opsets))
    write_reference(of, reference)
    for cell in of.cells():
        value = record(of, cell)
        assert value.artifact is not None
        artifact = value.artifact.model_copy(update={"external_data": (data,)})
        write(of, value.model_copy(update={"artifact": artifact}))
    (path / "weights-1.data").write_text("weights")
    JobFolder(path).log(opsets[0]).parent.mkdir()
    JobFolder(path).log(opsets[0]).write_text("log")
    return JobFolder(path)


@pytest.fixture
def fresh(tmp_path: Path) -> JobFolder:
    """Return the new folder, with opset 18."""
    return make_folder(tmp_path / "fresh", 18)


@pytest.fixture
def old(tmp_path: Path) -> JobFolder:
    """Return the old folder, with opset 9."""
    return make_folder(tmp_path / "old", 9)


def carry(old: JobFolder, fresh: JobFolder, is_valid: bool = True) -> list[int]:
    """Carry over what is valid, and return the opsets of the dropped records."""
    dropped = carry_over(FolderRecords(old), FolderRecords(fresh), lambda _: is_valid)
    return [record.cell.opset for record in dropped]


def test_files_weights_and_logs_are_carried_over_and_the_old_folder_stays_complete(
    tmp_path: Path, fresh: JobFolder
) -> None:
    old = make_folder(tmp_path / "old", 9, 10)
    before = sorted(path.name for path in old.path.rglob("*"))
    assert carry(old, fresh) == []
    assert {"9.onnx", "10.onnx", "18.onnx"} <= {path.name for path in fresh.path.iterdir()}
    assert fresh.log(9).read_text() == "log"
    assert len(fresh.read_records()) == 3
    assert sorted(path.name for path in old.path.rglob("*")) == before


@pytest.mark.parametrize("data", ["gone.data", "../secret", "link.data"])
def test_a_record_with_a_missing_or_linked_file_is_dropped(
    tmp_path: Path, data: str, fresh: JobFolder
) -> None:
    (tmp_path / "secret").write_text("secret")
    old = make_folder(tmp_path / "old", 9, data=data)
    (old.path / "link.data").symlink_to(tmp_path / "secret")
    assert carry(old, fresh) == [9]
    assert not (fresh.path / "9.onnx").exists()
    assert not (fresh.path / data).exists() or data == "../secret"


def test_a_stale_record_or_one_without_a_reference_is_dropped(
    old: JobFolder, fresh: JobFolder
) -> None:
    assert carry(old, fresh, is_valid=False) == [9]
    assert not (fresh.path / "9.onnx").exists()
    fresh.reference.unlink()
    old.reference.unlink()
    assert carry(old, fresh) == [9]


def test_damaged_records_are_ignored(old: JobFolder, fresh: JobFolder) -> None:
    (old.records / "9.cpu.json").write_text("{")
    assert carry(old, fresh) == []
    assert set(key_by_text(fresh.read_records())) == {"tiny/18/cpu"}


def test_the_new_record_has_priority(tmp_path: Path, fresh: JobFolder) -> None:
    old = make_folder(tmp_path / "old", 18)
    [stored] = old.read_records().values()
    write_json(old.record(stored.cell), stored.model_copy(update={"message": "old"}))
    assert carry(old, fresh) == []
    assert key_by_text(fresh.read_records())["tiny/18/cpu"].message == ""


def make_reference(*names: str, scale: float = 1.0, exact: bool = True, **fields: Any) -> str:
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
    old = make_folder(tmp_path / "old", 9, reference=before)
    fresh = make_folder(tmp_path / "fresh", 18, reference=now)
    assert (carry(old, fresh) == []) is stays
    assert (fresh.path / "9.onnx").exists() is stays


def test_reports_of_the_exporter_are_carried_over_with_their_opset(
    tmp_path: Path, old: JobFolder, fresh: JobFolder
) -> None:
    old.artifacts(9).mkdir(parents=True)
    (old.artifacts(9) / "report.md").write_text("said")
    (old.artifacts(9) / "link.md").symlink_to(tmp_path / "elsewhere")
    assert carry(old, fresh) == []
    assert [path.name for path in fresh.artifacts(9).iterdir()] == ["report.md"]


def test_a_file_with_the_path_of_the_build_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("mine")
    for path in (tmp_path / "build", tmp_path / "build" / "below"):
        build_folder = BuildFolder(path)
        for lock in (build_folder.lock(), build_folder.lock_committed_files()):
            with (
                pytest.raises(ExporterError, match="is not a folder; move it away") as caught,
                lock,
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
    bad |= {(".work", "file"), (".killed", "file")}
    if name != ".lock" and (name, kind) != ("shard.json", "folder"):  # an empty folder is no loss
        with pytest.raises(ExporterError, match=rf"{name}: (is a symlink|was not written)"):
            lock_and_leave(build)
        assert not (build / ".lock").exists()
        (build / ".lock").touch()  # from here on the names are those of exports
    if (name, kind) in bad:
        with pytest.raises(ExporterError, match=rf"{name}: (is a symlink|cannot be|was not)"):
            lock_and_leave(build)
        assert os.path.lexists(path)
    else:
        lock_and_leave(build)
        lock_and_leave(build)
    assert list(elsewhere.iterdir()) == []


def lock_and_leave(build: Path) -> None:
    """Simulate a run that is killed with a finished cell."""
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


pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid"), reason="this system has no owners and modes of files"
)

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Run the block without the privileges of root."""
    if IS_ROOT:
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if IS_ROOT:
            os.seteuid(0)
            os.setegid(0)


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a folder of the ordinary user in a place that it can enter."""
    folder = Path(tempfile.mkdtemp())
    if IS_ROOT:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    if not IS_ROOT:
        make_accessible(folder)
    shutil.rmtree(folder)


def leftover(build: Path) -> None:
    for name in (".work", ".killed"):
        (build / name / "tiny-abcdefgh/inner").mkdir(parents=True)
        (build / name / "tiny-abcdefgh/inner").chmod(0)
        (build / name).chmod(0)


def model_folder(build: Path) -> None:
    (build / "tiny").chmod(0)


def records(build: Path) -> None:
    (build / "tiny/records").chmod(0)


def files(build: Path) -> None:
    for path in build.rglob("*"):
        if path.is_file():
            path.chmod(0)


def everything(build: Path) -> None:
    for path in sorted(build.rglob("*"), reverse=True):
        path.chmod(0)
    build.chmod(0)


@pytest.mark.parametrize("spoil", [leftover, model_folder, records, files, everything])
def test_a_build_folder_without_permissions_is_repaired(
    root: Path, spoil: Callable[[Path], None]
) -> None:
    of = manifest(root)
    rebuild(of)  # as root, too, because it imports the last modules
    if IS_ROOT:
        shutil.rmtree(root / "build")
    with ordinary_user():
        rebuild(of)
        spoil(root / "build")
        assert list(list_inaccessible(root / "build"))
        rebuild(of)
        assert_complete(of)
        rebuild(of)
        assert not (root / "build/.work").exists()


def test_the_doctor_finds_inaccessible_files(root: Path) -> None:
    of = manifest(root)
    rebuild(of)
    if IS_ROOT:
        shutil.rmtree(root / "build")
    with ordinary_user():
        rebuild(of)
        assert not [d for d in examine_build(of) if "cannot be read" in d.message]
        (root / "build/tiny/reference.json").chmod(0)
        texts = [d.message for d in examine_build(of)]
    assert f"{root}/build/tiny/reference.json: cannot be read or changed" in texts


def test_a_job_folder_of_a_worker_with_another_umask_is_repaired(root: Path) -> None:
    with ordinary_user():
        folder = JobFolder(root / "tiny-abcdefgh")
        for path in (folder.path, folder.records, folder.log(None).parent):
            path.mkdir()
        folder.log(None).write_text("text")
        for path in (folder.log(None), folder.log(None).parent, folder.records, folder.path):
            path.chmod(0)
        repair_folder(folder)
        assert folder.log(None).read_text() == "text"
        assert folder.read_records() == {}


def nest(folder: Path, name: str = "n" * 250, levels: int = 20) -> None:
    """Create nested folders. By default, their path is longer than the system accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=inner)
        outer, inner = inner, os.open(name, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)


def test_nested_folders_of_a_model_end_no_export(root: Path) -> None:
    of = manifest(root)
    store = Store(root / "build/.store", StoreLimits(size=1 << 30, age=3600.0))
    nest(store.path / "blobs")

    def nest_and_work(of: Job) -> JobResult:
        nest(Path(of.folder))
        return worker(of)

    for work in (nest_and_work, worker):
        export(of, FakeEngine(work), store=store, force=True)
        assert_complete(of)
        assert store.measure()[1] > 0
    nest(root / "build/tiny")
    (garbage,) = find_garbage(root / "build", ())
    remove_garbage(garbage)
    assert not (root / "build/tiny").exists()


def test_nested_folders_of_a_model_are_removed(root: Path) -> None:
    folder = JobFolder(root / "tiny-abcdefgh")
    nest(folder.path)
    nest(folder.path / "test_data_set_0", "n", 1100)  # Python cannot remove them
    repair_folder(folder)
    assert max(len(path.relative_to(root).parts) for path in folder.path.rglob("*")) < 12
    nest(folder.path / "again")
    remove_folder(folder.path)
    assert list(root.glob("tiny-*")) == []


def leftover_of_root(build: Path) -> Path:
    (build / ".work/tiny-abcdefgh").mkdir(parents=True)
    (build / ".work/tiny-abcdefgh/file").touch()
    return build / ".work/tiny-abcdefgh/file"


def model_of_root(build: Path) -> Path:
    (build / "tiny/records/17.cpu.json").unlink()
    os.chown(build / "tiny", 0, 0)
    return build / "tiny"


def lock_of_root(build: Path) -> Path:
    (build / ".lock").unlink(missing_ok=True)
    (build / ".lock").touch()
    (build / ".lock").chmod(0o600)
    return build / ".lock"


@pytest.mark.skipif(not IS_ROOT, reason="only root can create files of another user")
@pytest.mark.parametrize("spoil", [leftover_of_root, model_of_root, lock_of_root])
def test_files_of_another_user_are_reported_with_their_owner(
    root: Path, spoil: Callable[[Path], Path]
) -> None:
    of = manifest(root)
    rebuild(of)
    shutil.rmtree(root / "build")
    with ordinary_user():
        rebuild(of)
    path = spoil(root / "build")
    name = pwd.getpwuid(0).pw_name
    with ordinary_user():
        with pytest.raises(ExporterError) as caught:
            rebuild(of)
        assert caught.value.exit_code is ExitCode.ENVIRONMENT
        assert f"{path} belongs to the user {name}" in str(caught.value)


def test_a_record_that_cannot_be_written_is_not_in_memory(tmp_path: Path) -> None:
    records = FolderRecords(JobFolder(tmp_path / "net"))
    kept, lost = make_record("net/17/cpu"), make_record("net/18/cpu")
    records.write(kept)
    records.folder.record(lost.cell).mkdir(parents=True)
    with pytest.raises(ExporterError, match="cannot be written"):
        records.write(lost)
    assert list(records.by_cell) == [kept.cell]
