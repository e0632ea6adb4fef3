"""`exporter gc` removes only files without a cell in the manifests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from exporter.cli.entry_point import run
from exporter.commands.gc.garbage import find_garbage, remove_garbage
from exporter.commands.toolchains import REHEARSALS_FOLDER
from exporter.jobs import JobFolder, write_json
from exporter.pipeline.build_folder import BuildFolder
from exporter.records.record import CellId
from exporter.store import Store, StoreLimits
from tests.unit.factory import key_by_text
from tests.unit.manifest.projects import ENTRY, make_project
from tests.unit.pipeline.builders import job, record, spec, write, write_reference
from tests.unit.store.cells import make_cell

TINY = spec(opsets=(17, 18))


def make_model_folder(
    build: Path, name: str = "tiny", opsets: tuple[int, ...] = (17, 18)
) -> JobFolder:
    """Create the folder of an exported model. Each opset has its own weights."""
    of = job(build / name, spec(name, opsets=opsets))
    folder = JobFolder(build / name)
    write_reference(of, "same")
    write_json(folder.job, of)
    for cell in of.cells():
        value = record(of, cell, content="x" * 100)
        data = f"weights-{cell.opset:016}.data"
        assert value.artifact is not None
        artifact = value.artifact.model_copy(update={"external_data": (data,)})
        write(of, value.model_copy(update={"artifact": artifact}))
        (folder.path / data).write_bytes(b"w" * 1000)
        folder.log(cell.opset).parent.mkdir(exist_ok=True)
        folder.log(cell.opset).write_text("log")
    folder.log(None).write_text("log")
    return folder


def list_garbage(build: Path) -> set[str]:
    """Return the garbage as paths in the build folder."""
    promised = job(build / "tiny", TINY).cells()
    return {item.path.relative_to(build).as_posix() for item in find_garbage(build, promised)}


def listing(build: Path) -> list[str]:
    return sorted(path.relative_to(build).as_posix() for path in build.rglob("*"))


def test_files_of_the_manifests_stay_even_if_stale(tmp_path: Path) -> None:
    make_model_folder(tmp_path)
    (tmp_path / "results.json").touch()
    assert list_garbage(tmp_path) == set()


def test_a_removed_model_is_garbage_with_its_size(tmp_path: Path) -> None:
    make_model_folder(tmp_path)
    make_model_folder(tmp_path, "old")
    before = listing(tmp_path)
    [item] = find_garbage(tmp_path, job(tmp_path / "tiny", TINY).cells())
    assert (item.path.name, item.reason) == ("old", "no manifest contains this model")
    files = [path for path in (tmp_path / "old").rglob("*") if path.is_file()]
    assert item.size == sum(path.stat().st_size for path in files) > 2200
    remove_garbage(item)
    assert listing(tmp_path) == [name for name in before if not name.startswith("old")]


def test_a_removed_opset_is_garbage_with_its_own_files(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path, opsets=(17, 18, 19))
    folder.artifacts(19).mkdir()
    (folder.artifacts(19) / "report.md").touch()
    assert list_garbage(tmp_path) == {
        "tiny/records/19.cpu.json",
        "tiny/19.onnx",
        "tiny/logs/19.log",
        "tiny/logs/19",
        "tiny/weights-0000000000000019.data",
    }
    for item in find_garbage(tmp_path, job(tmp_path / "tiny", TINY).cells()):
        remove_garbage(item)
    assert list_garbage(tmp_path) == set()
    assert set(key_by_text(folder.read_records())) == {"tiny/17/cpu", "tiny/18/cpu"}


def test_a_removed_device_makes_its_record_garbage_and_not_the_file(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path)
    (folder.records / "18.cuda.json").write_bytes((folder.records / "18.cpu.json").read_bytes())
    assert list_garbage(tmp_path) == {"tiny/records/18.cuda.json"}


def test_weights_without_a_file_are_garbage(tmp_path: Path) -> None:
    make_model_folder(tmp_path)
    (tmp_path / "tiny/weights-00000000000000ff.data").touch()
    (tmp_path / "tiny/.18.onnx.123.fresh").touch()
    assert list_garbage(tmp_path) == {
        "tiny/weights-00000000000000ff.data",
        "tiny/.18.onnx.123.fresh",
    }


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_weights_stay_if_a_record_is_damaged(tmp_path: Path, how: str) -> None:
    folder = make_model_folder(tmp_path)
    (tmp_path / "tiny/weights-00000000000000ff.data").touch()
    path = folder.records / "18.cpu.json"
    path.unlink() if how == "gone" else path.write_text("{")
    assert list_garbage(tmp_path) == set()


def test_files_that_no_export_wrote_stay(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path)
    for name in ("notes/a.txt", "repro/old-18-cpu/run.py", ".killed/old-1/records/18.cpu.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for name in ("mine.txt", "18.txt", "weights.data", "019.onnx"):
        (folder.path / name).touch()
    assert list_garbage(tmp_path) == set()


def test_symlinks_are_not_followed(tmp_path: Path) -> None:
    build, elsewhere = tmp_path / "build", tmp_path / "elsewhere"
    make_model_folder(elsewhere, "old")
    build.mkdir()
    (build / "old").symlink_to(elsewhere / "old")
    folder = make_model_folder(build)
    (folder.path / "19.onnx").symlink_to(elsewhere / "old/17.onnx")
    inside = make_model_folder(build, "gone")
    (inside.path / "link").symlink_to(elsewhere)
    before = listing(elsewhere)
    items = find_garbage(build, job(build / "tiny", TINY).cells())
    assert [each.path.name for each in items] == ["gone"]
    size = sum(path.lstat().st_size for path in inside.path.rglob("*.*") if not path.is_symlink())
    assert items[0].size <= size
    remove_garbage(items[0])
    assert listing(elsewhere) == before


def test_a_file_with_a_second_name_frees_no_bytes(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path, opsets=(17, 18, 19))
    os.link(folder.model(19), tmp_path / "published.onnx")
    sizes = {
        item.path.name: item.size
        for item in find_garbage(tmp_path, job(tmp_path / "tiny", TINY).cells())
    }
    assert sizes["19.onnx"] == 0
    assert sizes["weights-0000000000000019.data"] == 1000


MANIFEST = f"format = 1\n[models.tiny]\n{ENTRY}".replace('"9..21"', "[17, 18]")


def project(root: Path, manifest: str = MANIFEST) -> Path:
    files = {"pyproject.toml": "[tool.exporter]\n", "manifests/tiny.toml": manifest}
    return make_project(root, files)


def test_the_command_prints_the_removed_items_and_their_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path)
    make_model_folder(root / "build")
    make_model_folder(root / "build", "old")
    assert run(["gc", "--root", str(root), "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "build/old" in output
    assert "no manifest contains this model" in output
    assert "would remove 1 item (" in output
    assert (root / "build/old").is_dir()
    assert run(["gc", "--root", str(root)]) == 0
    assert "removed 1 item (" in capsys.readouterr().out
    assert not (root / "build/old").exists()
    assert run(["gc", "--root", str(root)]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"
    assert (root / "build/tiny/18.onnx").is_file()


def test_the_command_fails_while_a_run_has_the_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path)
    make_model_folder(root / "build", "old")
    with BuildFolder(root / "build").lock():
        assert run(["gc", "--root", str(root)]) == 4
    assert "another run has locked" in capsys.readouterr().err
    assert (root / "build/old").is_dir()


@pytest.mark.parametrize("manifest", [f"{MANIFEST}\n[", "format = 1\n", None])
def test_without_valid_cells_nothing_is_removed(tmp_path: Path, manifest: str | None) -> None:
    root = project(tmp_path, manifest or "")
    if manifest is None:
        (root / "manifests/tiny.toml").unlink()
    make_model_folder(root / "build", "old")
    assert run(["gc", "--root", str(root)]) != 0
    assert (root / "build/old").is_dir()


def test_a_build_folder_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    root = project(tmp_path)
    make_model_folder(tmp_path / "elsewhere", "old")
    (root / "build").symlink_to(tmp_path / "elsewhere")
    assert run(["gc", "--root", str(root)]) == 4
    assert (tmp_path / "elsewhere/old").is_dir()


def test_the_store_is_kept_within_its_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path)
    make_model_folder(root / "build")
    arguments = ["gc", "--root", str(root)]
    assert run(arguments) == 0
    assert capsys.readouterr().out == "nothing to remove\n", "there is no store"
    cell = make_cell(tmp_path / "made", content="x" * 3_000_000)
    Store(root / "build/.store", StoreLimits(size=1 << 30, age=60)).put(
        [cell], JobFolder(tmp_path / "made")
    )
    shutil.rmtree(tmp_path / "made")
    assert run(arguments) == 0
    assert (
        capsys.readouterr().out == "nothing to remove\nstore: nothing to remove; 3.00 MB remain\n"
    )
    assert run([*arguments, "--store-size", "2MB", "--dry-run"]) == 0
    assert "store: would remove 1 result (3.00 MB); 0" in capsys.readouterr().out
    assert run([*arguments, "--store-size", "2MB"]) == 0
    assert "store: removed 1 result (3.00 MB); 0" in capsys.readouterr().out
    assert not list((root / "build/.store/blobs").rglob("*"))


@pytest.mark.parametrize(
    ("option", "value", "output"),
    [("--store-size", "2", "a size of at least 1MB"), ("--store-age", "2 years", "an age such as")],
)
def test_an_invalid_limit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, output: str
) -> None:
    assert run(["gc", "--root", str(project(tmp_path)), option, value]) == 2
    assert output in capsys.readouterr().err


def test_a_read_only_store_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(tmp_path)
    cell = make_cell(tmp_path / "made")
    Store(tmp_path / "shared", StoreLimits(size=1 << 30, age=60)).put(
        [cell], JobFolder(tmp_path / "made")
    )
    monkeypatch.setenv("EXPORTER_STORE", str(tmp_path / "shared"))
    monkeypatch.setenv("EXPORTER_STORE_READONLY", "1")
    assert run(["gc", "--root", str(root), "--store-age", "1h"]) == 0
    assert "store: is read-only; nothing was removed" in capsys.readouterr().out
    monkeypatch.setenv("EXPORTER_STORE_READONLY", "perhaps")
    assert run(["gc", "--root", str(root)]) == 2
    assert "EXPORTER_STORE_READONLY: expected 1 or 0, got 'perhaps'" in capsys.readouterr().err


def test_a_remote_store_is_evicted_only_by_its_own_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(tmp_path)
    assert run(["gc", "--root", str(root), "--remote-age", "1h"]) == 2
    assert "the project has no remote store; set `store` to a URL" in capsys.readouterr().err
    server = tmp_path / "server"
    entry = server / "entries" / "aa" / ("b" * 62) / f"{'c' * 32}.json"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"damaged")
    monkeypatch.setenv("EXPORTER_STORE", f"file://{server}")
    assert run(["gc", "--root", str(root), "--store-age", "1h"]) == 0
    assert "remote" not in capsys.readouterr().out
    assert entry.exists()
    assert run(["gc", "--root", str(root), "--remote-size", "1GiB"]) == 0
    assert "remote store: removed 1 result (7 B); 0 B remain" in capsys.readouterr().out
    assert not entry.exists()
    monkeypatch.setenv("EXPORTER_STORE_READONLY", "1")
    assert run(["gc", "--root", str(root), "--remote-size", "1GiB"]) == 2
    assert "is read-only; nothing was removed" in capsys.readouterr().err


def test_the_results_of_rehearsals_are_garbage(tmp_path: Path) -> None:
    make_model_folder(tmp_path)
    rehearsed = tmp_path / REHEARSALS_FOLDER / "0123"
    make_model_folder(rehearsed)
    assert list_garbage(tmp_path) == {".rehearsals/0123"}


def test_a_removed_toolchain_is_garbage(tmp_path: Path) -> None:
    for name in ("old", "gone"):
        make_model_folder(tmp_path / ".toolchains" / name)
    cells = [
        CellId(model="tiny", opset=opset, device=device)
        for opset in (17, 18)
        for device in ("cpu", "cpu@old")
    ]
    items = {item.path.relative_to(tmp_path).as_posix() for item in find_garbage(tmp_path, cells)}
    assert ".toolchains/gone" in items
    # The records there are of the device `cpu`, which belongs to another folder.
    records = {f".toolchains/old/tiny/records/{opset}.cpu.json" for opset in (17, 18)}
    assert items == {".toolchains/gone", *records}


def test_folders_with_files_of_the_user_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path)
    build = tmp_path / "build"
    for name in ("old", "mine", ".toolchains/gone/tiny", ".rehearsals/one/tiny"):
        make_model_folder((build / name).parent, Path(name).name)
    shutil.copytree(build / "old", build / "backup")
    for name in ("mine", ".toolchains/gone/tiny", ".rehearsals/one"):
        (build / name / "notes.txt").write_text("precious")
    (build / ".lock").touch()
    assert run(["gc", "--root", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert not (build / "old").exists()
    for name in ("mine", ".toolchains/gone/tiny", ".rehearsals/one"):
        assert (build / name / "notes.txt").read_text() == "precious"
        assert f"build/{name}/notes.txt: stays, since no export wrote it" in output
    assert (build / "backup/17.onnx").exists()
    assert "build/backup: stays, since no export wrote it" in output
