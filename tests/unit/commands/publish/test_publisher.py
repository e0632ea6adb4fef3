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
)
from exporter.commands.publish.publisher import open_private_folder
from exporter.core.errors import ExporterError
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
    path.mkdir()
    (path / "model.onnx").touch()
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
