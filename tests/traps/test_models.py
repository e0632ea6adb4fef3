"""Models and contracts: each is exported and proved, and gets the one right verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traps.prove import record_of
from tests.traps.running import parameters
from tests.traps.table import ALL
from tests.traps.trap import Trap


@pytest.mark.parametrize("trap", parameters(trap for trap in ALL if trap.tamper is None))
def test_the_verdict_on_a_model(trap: Trap, tmp_path: Path) -> None:
    assert trap.verdict.differences(record_of(trap, tmp_path / "trap")) == []
