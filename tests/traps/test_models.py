"""A model is exported and proved, and the checks give the one right verdict."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from exporter.records.record import Record
from exporter.worker import fork_server
from exporter.worker.process.fork_call import compute_in_fork
from tests.traps.prove import make_record
from tests.traps.running import parameters
from tests.traps.table import ALL
from tests.traps.trap import Trap


@pytest.fixture(scope="module", autouse=True)
def _modules() -> None:
    """Import what the server of workers imports, once for all forks."""
    fork_server.preload()
    fork_server.preload_capture()


def make_record_in_fork(trap: Trap, folder: Path) -> Record:
    """Return the record of a trap, in a process in which no other model ran.

    A cell has a process of its own, and the first run that Python or torch observes in a process
    may show less than later ones.
    """

    def run() -> tuple[str, str]:
        try:
            return make_record(trap, folder).to_json(), ""
        except Exception:  # noqa: BLE001 - the fork sends the text of any exception
            return "", traceback.format_exc()

    text, error = compute_in_fork(run) or ("", "the process of the trap ended early")
    assert not error, error
    return Record.read(text.encode())


@pytest.mark.parametrize("trap", parameters(trap for trap in ALL if trap.tamper is None))
def test_the_verdict_on_a_model(trap: Trap, tmp_path: Path) -> None:
    record = make_record_in_fork(trap, tmp_path / "trap")
    assert trap.installed_verdict.differences(record) == []
