"""torch's own deprecations are no errors here: both exporters are tested on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

_KNOWN = (
    r"ignore:.*torch\.jit\..*deprecated:DeprecationWarning",
    r"ignore:You are using the legacy TorchScript-based ONNX export:DeprecationWarning",
    r"ignore:.*LeafSpec.*is deprecated:FutureWarning",
    r"ignore:The feature will be removed:DeprecationWarning",
)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Adds the known warnings to every test below this folder."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            for known in _KNOWN:
                item.add_marker(pytest.mark.filterwarnings(known))
