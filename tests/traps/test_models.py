"""A model is exported and proved, and the checks give the one right verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traps.prove import make_record, run_in_fork
from tests.traps.running import parameters
from tests.traps.table import ALL
from tests.traps.trap import Trap


@pytest.mark.parametrize("trap", parameters(trap for trap in ALL if trap.tamper is None))
def test_the_verdict_on_a_model(trap: Trap, tmp_path: Path) -> None:
    record = run_in_fork(lambda: make_record(trap, tmp_path / "trap"))
    assert trap.installed_verdict.differences(record) == []
