"""Each row of `docs/torch-onnx.md`, exported and proved as a project of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.feature import Feature
from tests.features.holding import differences
from tests.features.table import FEATURES


@pytest.mark.parametrize("feature", [pytest.param(row, id=row.name) for row in FEATURES])
def test_what_comes_of_a_row(feature: Feature, tmp_path: Path) -> None:
    assert differences(feature, tmp_path / "project") == []
