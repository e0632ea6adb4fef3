"""A program that measures is no part of the product: its tests are campaigns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark each test of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.campaign)
