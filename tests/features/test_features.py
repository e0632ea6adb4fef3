"""Every row of `docs/torch-onnx.md` is in a quarter, and rows can run by the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.features.feature import Support
from tests.features.names import DYNAMIC_AXES
from tests.features.row_differences import differences
from tests.features.rows import QUARTERS, quarter
from tests.features.table import FEATURES


def test_the_quarters_contain_all_rows() -> None:
    rows = [param.id for number in range(QUARTERS) for param in quarter(number)]
    assert sorted(rows) == sorted(row.name for row in FEATURES)
    assert len(list(Path(__file__).parent.glob("test_quarter_*.py"))) == QUARTERS


def test_a_row_may_run_by_the_command(tmp_path: Path) -> None:
    # The quarters contain right rows that run by the command.
    lines = 'outputs = [{ name = "y", shape = ["batch", 5] }]'
    wrong = replace(DYNAMIC_AXES, by_command=True, rest="opsets = [13]", facts={}, lines=lines)
    assert any(row.by_command and row.support is Support.WORKS for row in FEATURES)
    assert differences(wrong, tmp_path / "wrong")
