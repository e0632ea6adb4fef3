"""Ignore deprecation warnings of torch, because the tests run both exporters on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

_IGNORED_WARNINGS = (
    r"ignore:.*torch\.jit\..*deprecated:DeprecationWarning",
    r"ignore:You are using the legacy TorchScript-based ONNX export:DeprecationWarning",
    r"ignore:.*LeafSpec.*is deprecated:FutureWarning",
    r"ignore:The feature will be removed:DeprecationWarning",
    r"ignore:Guards may run slower on Python 3.13.0:RuntimeWarning",
)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Ignore the known warnings in each test of this folder."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            for warning in _IGNORED_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))
