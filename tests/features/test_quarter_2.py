"""Each row of `docs/torch-onnx.md`, exported and proved: quarter 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.feature import Feature
from tests.features.rows import check_row, quarter


@pytest.mark.parametrize("feature", quarter(1))
def test_a_row_is_right(feature: Feature, tmp_path: Path) -> None:
    check_row(feature, tmp_path)
