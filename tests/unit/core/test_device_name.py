"""Names of devices in toolchains, and the patterns of conditions."""

from __future__ import annotations

import pytest

from exporter.core.device_name import DeviceName
from exporter.records.record import CellId


def test_a_name_has_a_device_and_a_toolchain() -> None:
    own, other = DeviceName("cpu"), DeviceName("cpu@torch2.12")
    assert (own.base, own.suffix, own.suffix_pattern) == ("cpu", "", "current")
    assert (other.base, other.suffix, other.suffix_pattern) == ("cpu", "torch2.12", "torch2.12")
    assert DeviceName.build("cpu", "torch2.12") == other
    assert DeviceName.build("cpu", "") == own


def test_a_stored_name_is_text() -> None:
    stored = '{"model":"net","opset":18,"device":"cpu@old"}'
    cell = CellId.model_validate_json(stored)
    assert cell.device.suffix == "old"
    assert cell.model_dump_json() == stored


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("cpu", "cpu", True),
        ("cpu", "cpu@old", True),
        ("c*", "cuda@old", True),
        ("*@old", "cpu@old", True),
        ("cpu@*", "cpu@old", True),
        ("cuda", "cpu@old", False),
        ("*@old", "cpu", False),
        ("cpu@new", "cpu@old", False),
        ("cpu@*", "cpu", False),
        ("*@current", "cpu", True),
        ("*@current", "cpu@old", False),
    ],
)
def test_a_pattern_without_a_toolchain_matches_all(pattern: str, name: str, matches: bool) -> None:
    assert DeviceName(name).matches(pattern) is matches
