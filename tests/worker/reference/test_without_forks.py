"""Without forks, a model that depends on earlier calls is found by a new process."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.worker.model import source_loader
from exporter.worker.process import fork_call
from exporter.worker.reference import python_state
from tests.traps.prove import make_record
from tests.traps.table import ALL

NAMES = (
    "first input kept in a global variable",
    "running maximum in a parameter",
    "factor from the system's random numbers",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_that_of_a_fork(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (source_loader, fork_call, python_state):
        monkeypatch.setattr(module, "IS_LINUX", False)
    (trap,) = (each for each in ALL if each.name == name)
    assert trap.installed_verdict.differences(make_record(trap, tmp_path / "trap")) == []
