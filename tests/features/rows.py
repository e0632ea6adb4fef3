"""The rows of `docs/torch-onnx.md` in quarters, because test files run in parallel.

Input: the number of a quarter. Output: its rows as parameters of a test, and the test function.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.features.feature import Feature
from tests.features.row_differences import differences
from tests.features.table import FEATURES

QUARTERS = 4


def quarter(number: int) -> list[Any]:
    """Return every fourth row from `number` on, which spreads slow sections over all quarters."""
    return [pytest.param(row, id=row.name) for row in FEATURES[number::QUARTERS]]


def check_row(feature: Feature, folder: Path) -> None:
    """Export the project of a row and compare it with the row."""
    if feature.package and find_spec(feature.package) is None:
        pytest.skip(f"{feature.package} is not installed")
    if feature.program and which(feature.program) is None:
        pytest.skip(f"{feature.program} is not on PATH")
    assert differences(feature, folder / "project") == []
