"""Each row of `docs/torch-onnx.md`, exported and proved as a project of its own."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.features.feature import Feature
from tests.features.holding import differences
from tests.features.names import DYNAMIC_AXES
from tests.features.table import FEATURES


@pytest.mark.parametrize("feature", [pytest.param(row, id=row.name) for row in FEATURES])
def test_what_comes_of_a_row(feature: Feature, tmp_path: Path) -> None:
    if feature.package and find_spec(feature.package) is None:
        pytest.skip(f"{feature.package} is not installed")
    assert differences(feature, tmp_path / "project") == []


def test_a_row_may_run_by_the_command(tmp_path: Path) -> None:
    by_command = replace(DYNAMIC_AXES, by_command=True, rest="opsets = [13]", holds={})
    assert differences(by_command, tmp_path / "right") == []
    wrong = replace(by_command, lines='outputs = [{ name = "y", shape = ["batch", 5] }]')
    assert differences(wrong, tmp_path / "wrong")
