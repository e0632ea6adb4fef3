"""A model is exported and proved, and the checks give the one right verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traps.prove import make_record
from tests.traps.running import parameters
from tests.traps.table import ALL
from tests.traps.trap import Trap


@pytest.mark.parametrize("trap", parameters(trap for trap in ALL if trap.tamper is None))
def test_the_verdict_on_a_model(trap: Trap, tmp_path: Path) -> None:
    assert trap.installed_verdict.differences(make_record(trap, tmp_path / "trap")) == []
