"""Ranges of versions, as `torch` of an expectation has them."""

from __future__ import annotations

import pytest

from exporter.manifest.syntax.version_ranges import check_version_range, is_in_range


@pytest.mark.parametrize(
    ("versions", "version", "expected"),
    [
        ("", "2.13.0", True),
        ("", "", True),
        ("<2.14", "2.13.0+cpu", True),
        ("<2.14", "2.14.1", False),
        ("<2.14", "2.9.0", True),
        (">=2.14", "2.14.0a0+git1234", True),
        (">=2.12,<2.14", "2.13.1 0123456789ab", True),
        (">=2.12,<2.14", "2.11.0", False),
        (">2.13", "2.13.1", False),
        ("<=2.13", "2.13.1", True),
        ("==2.13", "2.13.1", True),
        ("==2.13.0", "2.13", True),
        ("!=2.13.0", "2.13.0", False),
        ("<2.14", "", False),
        ("<2.14", "missing", False),
    ],
)
def test_a_version_is_in_a_range(versions: str, version: str, expected: bool) -> None:
    assert is_in_range(version, versions) is expected


def test_a_range_is_stored_without_spaces() -> None:
    assert check_version_range(" >= 2.12 , <2.14") == ">=2.12,<2.14"


@pytest.mark.parametrize("versions", ["2.14", "", "~=2.14", "<2.14,", "<two", "<2.14 >2", "==2.*"])
def test_another_text_is_no_range(versions: str) -> None:
    with pytest.raises(ValueError, match="comparisons of versions such as"):
        check_version_range(versions)
