"""Names of devices in toolchains, and the patterns of conditions."""

from __future__ import annotations

import pytest

from exporter.manifest.syntax.values import (
    join_device,
    matches_device,
    matches_toolchain,
    split_device,
)


def test_a_name_has_a_device_and_a_toolchain() -> None:
    assert split_device("cpu") == ("cpu", "")
    assert split_device("cpu@torch2.12") == ("cpu", "torch2.12")
    assert join_device("cpu", "torch2.12") == "cpu@torch2.12"


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
    ],
)
def test_a_pattern_without_a_toolchain_matches_all(pattern: str, name: str, matches: bool) -> None:
    assert matches_device(name, pattern) is matches


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "cpu", True),
        ("current", "cpu", True),
        ("old", "cpu@old", True),
        ("o*", "cpu@old", True),
        ("current", "cpu@old", False),
        ("old", "cpu", False),
    ],
)
def test_current_is_the_toolchain_of_other_devices(pattern: str, name: str, matches: bool) -> None:
    assert matches_toolchain(name, pattern) is matches
