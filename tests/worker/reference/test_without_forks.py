"""Without forks, a model that depends on earlier calls is found by a new process."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from exporter.records.record import Record, Status
from exporter.worker.model import source_loader
from exporter.worker.process import fork_call
from exporter.worker.reference import python_state
from tests.traps.prove import export, make_record, run_in_fork
from tests.traps.table import ALL
from tests.traps.trap import contract

NAMES = (
    "first input kept in a global variable",
    "running maximum in a parameter",
    "factor from the system's random numbers",
)


def prohibit_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (source_loader, fork_call, python_state):
        monkeypatch.setattr(module, "IS_LINUX", False)


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_that_of_a_fork(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trap,) = (each for each in ALL if each.name == name)

    def make() -> Record:
        prohibit_forks(monkeypatch)
        return make_record(trap, tmp_path / "trap")

    # In this process, the models would keep their first input for the tests of the traps.
    record = run_in_fork(make)
    assert trap.installed_verdict.differences(record) == []


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (sys.executable, ""),
        (shutil.which("false"), "exited with code 1"),
        ("no-such-python", "[Errno 2] No such file or directory: 'no-such-python'"),
    ],
)
def test_a_process_that_fails_is_a_note(
    program: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prohibit_forks(monkeypatch)
    monkeypatch.setattr(sys, "executable", program)
    (record,) = export(contract("sizes.py:Positions"), tmp_path / "trap")
    text = "not proved: the same outputs after other calls: the process of these calls failed: "
    assert record.status is Status.PASS, record.message
    notes = [note for note in record.notes if note.startswith("not proved")]
    assert notes == ([text + problem] if problem else [])


# The test above has the same entry with a second build, and no note.
def test_a_second_build_that_ends_early_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prohibit_forks(monkeypatch)
    monkeypatch.setattr(source_loader, "compute_in_fork", lambda function: None)
    (record,) = export(contract("sizes.py:Positions"), tmp_path / "trap")
    text = "not proved: the same weights in each build: "
    assert record.status is Status.PASS, record.message
    assert [note for note in record.notes if note.startswith(text)]
