"""The page docs/checks.md describes every check and no other."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.checks import RUNTIME_CHECKS, STRUCTURE_CHECKS
from exporter.core.check_table import CALLER_CHECK, CHECKS, LOAD_CHECK

PAGE = Path(__file__).resolve().parents[3] / "docs" / "checks.md"


def test_every_check_has_its_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    structure = {check.name for check in STRUCTURE_CHECKS}
    # The check of a caller is no part of a session: the program opens the file.
    assert set(rows) == structure | {check.name for check in RUNTIME_CHECKS} | {CALLER_CHECK}
    assert len(rows) == len(set(rows))


def test_the_list_of_names_has_every_check_with_its_stage() -> None:
    structure = {check.name for check in STRUCTURE_CHECKS}
    runtime = {check.name for check in RUNTIME_CHECKS} | {CALLER_CHECK}
    stages = {"structure": structure, "load": {LOAD_CHECK}, "parity": runtime}
    expected = {name: stage for stage, names in stages.items() for name in names}
    assert expected == {name: row.stage for name, row in CHECKS.items()}
