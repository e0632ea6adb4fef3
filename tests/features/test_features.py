"""Each row of `docs/torch-onnx.md`, exported and proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest
from _pytest.mark import ParameterSet

from tests.features.feature import Feature, Support
from tests.features.names import DYNAMIC_AXES
from tests.features.row_differences import differences
from tests.features.table import FEATURES


def list_parameters() -> Iterator[ParameterSet]:
    """Yield the rows. Those that export document torch, so they are no part of the quick tests."""
    for row in FEATURES:
        yield pytest.param(row, id=row.name, marks=() if row.invalid else pytest.mark.campaign)


@pytest.mark.parametrize("feature", list(list_parameters()))
def test_a_row_is_right(feature: Feature, tmp_path: Path) -> None:
    if feature.package and find_spec(feature.package) is None:
        pytest.skip(f"{feature.package} is not installed")
    if feature.program and which(feature.program) is None:
        pytest.skip(f"{feature.program} is not on PATH")
    assert differences(feature, tmp_path / "project") == []


@pytest.mark.campaign
def test_a_row_may_run_by_the_command(tmp_path: Path) -> None:
    # The table contains right rows that run by the command.
    lines = 'outputs = [{ name = "y", shape = ["batch", 5] }]'
    wrong = replace(DYNAMIC_AXES, by_command=True, rest="opsets = [13]", facts={}, lines=lines)
    assert any(row.by_command and row.support is Support.WORKS for row in FEATURES)
    assert differences(wrong, tmp_path / "wrong")
