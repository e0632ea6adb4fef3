"""Tools with another version than the results are listed, missing ones are ignored."""

from __future__ import annotations

import pytest

from exporter.api.gate_run import find_other_tools


@pytest.mark.parametrize(
    ("records", "today", "expected"),
    [
        ({"torch": "2.12.1"}, {"torch": "2.12.1"}, ""),
        ({"torch": "2.12.1"}, {"torch": "2.13.0"}, "torch 2.12.1 (here 2.13.0)"),
        (
            {"torch": "2.12.1", "onnx": "1.21.0", "numpy": "2.0.0"},
            {"torch": "2.13.0", "onnx": "1.23.2", "numpy": "2.0.0"},
            "torch 2.12.1 (here 2.13.0), onnx 1.21.0 (here 1.23.2)",
        ),
        ({"torch": "2.12.1"}, {"torch": "missing"}, ""),
        ({"torch": "missing"}, {"torch": "2.13.0"}, ""),
        ({}, {"torch": "2.13.0"}, ""),
    ],
)
def test_other_versions_are_named(
    records: dict[str, str], today: dict[str, str], expected: str
) -> None:
    assert find_other_tools(records, today) == expected
