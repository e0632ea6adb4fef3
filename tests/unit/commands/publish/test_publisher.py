"""The records of its cells decide whether a file is published; leftovers of killed runs go."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from exporter.commands.publish.published_folder import (
    Candidate,
    Omission,
    choose_file,
    copy_assets,
    list_edited_texts,
    write_catalog,
)
from exporter.commands.publish.publisher import open_private_folder
from exporter.core.errors import ExporterError
from exporter.core.files import hash_file
from exporter.planning.plan import PlannedCell
from exporter.records.baseline import parse_cell
from exporter.records.record import CellId, Record, Source, Status
from tests.unit.factory import DYNAMO, make_artifact, make_record, make_run, make_spec

RED = [status for status in Status if status.is_red]


def planned(*cells: CellId | str, skip: str = "") -> list[PlannedCell]:
    return [PlannedCell(cell=parse_cell(str(cell)), route=DYNAMO, skip=skip) for cell in cells]


def decide(*records: Record, include_red: bool = False) -> Candidate | Omission:
    """Return the choice for the records of one file."""
    records_by_cell = make_run(*records).by_cell()
    return choose_file(planned(*records_by_cell), records_by_cell, {}, include_red=include_red)


def test_a_file_that_passes_on_all_its_devices_is_published() -> None:
    choice = decide(make_record("net/18/cpu"), make_record("net/18/ort"))
    assert isinstance(choice, Candidate)
    assert [record.cell.device for record in choice.records] == ["cpu", "ort"]
    assert not choice.warning


@pytest.mark.parametrize("status", [*RED, Status.UNAVAILABLE])
def test_one_device_that_is_not_green_is_enough_to_refuse(status: Status) -> None:
    choice = decide(make_record("net/18/cpu"), make_record("net/18/ort", status, message="no"))
    assert isinstance(choice, Omission)
    assert choice.is_refused
    assert choice.reason.startswith(status.value)
    assert choice.reason.endswith("on ort: no")


WORDS = {f"w{number}": number for number in range(1000)}


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"model": {"vocab": WORDS}}, ""),
        ({"model": {"vocab": [["w", 0.0]] * 1000}}, ""),
        ({"model": {"vocab": [["w", 0.0]] * 1001}}, "has a token 1000, the logits have 1000"),
        ({"model": {"vocab": {"w": 1000}}}, "has a token 1000, the logits have 1000 values; copy"),
        ({"model": {"vocab": WORDS}, "added_tokens": [{"id": 1000}]}, "has a token 1000"),
        ({"models": {}}, "is no tokenizer: KeyError: 'model'; copy the tokenizer of this model"),
        ([], "is no tokenizer: TypeError"),
    ],
)
def test_a_tokenizer_is_copied_if_it_fits_the_logits(
    tmp_path: Path, tokenizer: Any, message: str
) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "folder").mkdir()
    text = json.dumps(tokenizer)
    for name, content in (("config.json", "{}"), ("tokenizer.json", text), ("a.py", "")):
        (tmp_path / "net" / name).write_text(content)
    source = Source(file="net/config.json", state="0" * 64)
    choice = decide(make_record("net/18/cpu", sources=(source,)))
    assert isinstance(choice, Candidate)
    expected = pytest.raises(ExporterError, match=f"net/tokenizer.json: {message}")
    with expected if message else nullcontext():
        copy_assets(choice, make_spec(), tmp_path, tmp_path / "folder")
        copied = {path.name for path in (tmp_path / "folder").iterdir()}
        assert copied == {"config.json", "tokenizer.json"}


def copy_source(tmp_path: Path, *sources: str) -> set[str]:
    """Copy the assets beside these configurations and return the names."""
    (tmp_path / "folder").mkdir()
    files = tuple(Source(file=each, state="0" * 64) for each in sources)
    choice = decide(make_record("net/18/cpu", sources=files))
    assert isinstance(choice, Candidate)
    copy_assets(choice, make_spec(), tmp_path / "project", tmp_path / "folder")
    return {path.name for path in (tmp_path / "folder").iterdir()}


def test_a_tokenizer_of_a_hubs_cache_is_copied(tmp_path: Path) -> None:
    blobs, revision = tmp_path / "hub/blobs", tmp_path / "hub/snapshots/abc"
    blobs.mkdir(parents=True)
    revision.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    for name, text in (("config.json", "{}"), ("tokenizer.json", '{"model": {"vocab": {"a": 0}}}')):
        (blobs / name.upper()).write_text(text)
        (revision / name).symlink_to(f"../../blobs/{name.upper()}")
    config = str(revision / "config.json")
    assert copy_source(tmp_path, config, config) == {"config.json", "tokenizer.json"}
    assert not (tmp_path / "folder/config.json").is_symlink()


@pytest.mark.parametrize(("name", "text"), [("vocab.txt", ""), ("tokenizer.json", "[" * 100_000)])
def test_a_hostile_asset_is_refused(tmp_path: Path, name: str, text: str) -> None:
    model = tmp_path / "project/model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (tmp_path / "secret").write_text("secret")
    if text:
        (model / name).write_text(text)
    else:
        (model / name).symlink_to(tmp_path / "secret")
    problem = "is no tokenizer: RecursionError" if text else "is a symlink out of the project"
    with pytest.raises(ExporterError, match=f"model/{name}: {problem}"):
        copy_source(tmp_path, "model/config.json")


def test_two_folders_with_different_files_of_a_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "project" / name).mkdir(parents=True)
        (tmp_path / "project" / name / "config.json").write_text(f'"{name}"')
    with pytest.raises(ExporterError, match=r"b/config\.json: another folder of the model has a"):
        copy_source(tmp_path, "a/config.json", "b/config.json")


def test_an_expected_failure_is_omitted_and_not_refused() -> None:
    choice = decide(make_record("net/18/cpu"), make_record("net/18/ort", Status.XFAIL))
    assert isinstance(choice, Omission)
    assert not choice.is_refused


@pytest.mark.parametrize("status", [Status.FAIL, Status.XPASS, Status.XFAIL])
def test_failing_files_are_published_on_demand_with_a_warning(status: Status) -> None:
    record = make_record("net/18/cpu", status, artifact=make_artifact("net", 18), message="off")
    choice = decide(record, include_red=True)
    assert isinstance(choice, Candidate)
    assert "on cpu: off" in choice.warning


def test_a_missing_file_is_not_published_on_demand() -> None:
    choice = decide(make_record("net/18/cpu", Status.ERROR, message="no way"), include_red=True)
    assert isinstance(choice, Omission)
    assert choice.reason.startswith("there is no file; error at convert on cpu: no way")


def test_two_files_of_one_opset_are_refused() -> None:
    other = make_artifact("net", 18, sha256="1" * 64)
    choice = decide(make_record("net/18/cpu"), make_record("net/18/ort", artifact=other))
    assert isinstance(choice, Omission)
    assert "proved on different files" in choice.reason


def test_a_missing_result_is_refused_with_its_reason() -> None:
    cells = planned("net/18/cpu", "net/18/ort")
    records_by_cell = make_run(make_record("net/18/cpu")).by_cell()
    missing = {parse_cell("net/18/ort"): "its manifest entry changed since"}
    choice = choose_file(cells, records_by_cell, missing)
    assert isinstance(choice, Omission)
    assert choice.reason == (
        "no result on ort: its manifest entry changed since; run `exporter export net`"
    )
    assert choice.is_refused


def test_skipped_devices_are_ignored_and_skipped_files_are_not_refused() -> None:
    cells = [*planned("net/17/cpu"), *planned("net/17/ort", skip="no kernel")]
    records_by_cell = make_run(make_record("net/17/cpu")).by_cell()
    assert isinstance(choose_file(cells, records_by_cell, {}), Candidate)
    choice = choose_file(planned("net/18/cpu", skip="too new"), {}, {})
    assert isinstance(choice, Omission)
    assert choice.reason == "the manifest skips it: too new"
    assert not choice.is_refused


def make_folder(path: Path, *, age: float) -> None:
    (path / "alexnet/staged/18").mkdir(parents=True)
    (path / "alexnet/staged/18/model.onnx").touch()
    (path / ".lock").touch()
    changed = path.stat().st_mtime - age
    os.utime(path, (changed, changed))


def test_a_folder_of_a_killed_publication_is_removed(tmp_path: Path) -> None:
    make_folder(tmp_path / ".publish-killed", age=100)
    make_folder(tmp_path / ".publish-young", age=0)
    make_folder(tmp_path / ".publish-running", age=100)
    (tmp_path / "alexnet").mkdir()
    with (
        FileLock(tmp_path / ".publish-running/.lock"),
        open_private_folder(tmp_path) as private,
    ):
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {".publish-young", ".publish-running", "alexnet", private.name}
    assert not private.exists()


def test_the_folder_is_removed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_private_folder(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["notes.md", "net/notes.md", ".lock"])
def test_a_folder_of_the_user_with_such_a_name_stays(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path / ".publish-notes", age=100)
    path = tmp_path / ".publish-notes" / name
    path.parent.mkdir(exist_ok=True)
    if name == ".lock":
        path.unlink()
        path.parent.joinpath("notes.md").touch()
    else:
        path.write_text("mine")
    os.utime(tmp_path / ".publish-notes", (0, 0))
    with open_private_folder(tmp_path):
        pass
    assert [each.name for each in tmp_path.iterdir()] == [".publish-notes"]


def test_a_readme_of_the_user_beside_published_folders_stays(tmp_path: Path) -> None:
    assert not write_catalog(tmp_path, tmp_path)
    before = (tmp_path / "README.md").read_text()
    assert not write_catalog(tmp_path, tmp_path)
    (tmp_path / "README.md").write_text(before + "mine")
    assert "README.md: is no list of `exporter publish`" in write_catalog(tmp_path, tmp_path)
    assert (tmp_path / "README.md").read_text() == before + "mine"
    # Release 1.0 had no digest of the README in the list.
    (tmp_path / "index.json").write_text('{"format": 1, "tool": "onnx-exporter-matrix"}')
    assert "README.md: is no list" in write_catalog(tmp_path, tmp_path)
    (tmp_path / "README.md").write_text(before)
    assert not write_catalog(tmp_path, tmp_path)
    assert '"readme": "' in (tmp_path / "index.json").read_text()
    (tmp_path / "index.json").unlink()
    (tmp_path / "index.json").symlink_to("/dev/zero")
    assert "index.json: is no list" in write_catalog(tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["README.md", "generate.py"])
def test_an_edited_text_of_a_published_folder_is_not_replaced(tmp_path: Path, name: str) -> None:
    for each in ("README.md", "generate.py", "model.onnx"):
        (tmp_path / each).write_text(each)
    lines = (
        f"{hash_file(tmp_path / each)}  {each}\n"
        for each in ("README.md", "generate.py", "model.onnx")
    )
    (tmp_path / "SHA256SUMS").write_text("".join(lines))
    assert not list_edited_texts(tmp_path)
    (tmp_path / "model.onnx").write_text("damaged, so it is replaced")
    assert not list_edited_texts(tmp_path)
    (tmp_path / name).write_text("mine")
    assert list_edited_texts(tmp_path) == (name,)
