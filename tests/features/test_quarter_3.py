"""Each row of `docs/torch-onnx.md`, exported and proved: quarter 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.feature import Feature
from tests.features.rows import hold, quarter


@pytest.mark.parametrize("feature", quarter(2))
def test_what_comes_of_a_row(feature: Feature, tmp_path: Path) -> None:
    hold(feature, tmp_path)
