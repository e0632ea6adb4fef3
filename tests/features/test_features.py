"""How rows of `docs/torch-onnx.md` are proved, and that each of them is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.features.names import DYNAMIC_AXES
from tests.features.row_differences import differences
from tests.features.rows import QUARTERS, quarter
from tests.features.table import FEATURES


def test_the_quarters_are_the_whole() -> None:
    rows = [param.id for number in range(QUARTERS) for param in quarter(number)]
    assert sorted(rows) == sorted(row.name for row in FEATURES)
    assert len(list(Path(__file__).parent.glob("test_quarter_*.py"))) == QUARTERS


def test_a_row_may_run_by_the_command(tmp_path: Path) -> None:
    by_command = replace(DYNAMIC_AXES, by_command=True, rest="opsets = [13]", facts={})
    assert differences(by_command, tmp_path / "right") == []
    wrong = replace(by_command, lines='outputs = [{ name = "y", shape = ["batch", 5] }]')
    assert differences(wrong, tmp_path / "wrong")
