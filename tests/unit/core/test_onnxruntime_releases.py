"""The table of ONNX Runtime's releases, and the gain of a lower IR version."""

from __future__ import annotations

from itertools import pairwise

import pytest

from exporter.core.known_names import (
    RELEASES,
    ReleaseLimits,
    find_first_release,
    find_older_release,
    format_release,
)


def test_later_releases_load_all_that_earlier_ones_do() -> None:
    for earlier, later in pairwise(RELEASES):
        assert earlier.release < later.release
        assert (earlier.opset, earlier.ir_version) != (later.opset, later.ir_version)
        assert earlier.opset <= later.opset
        assert earlier.ir_version <= later.ir_version


@pytest.mark.parametrize(
    ("opset", "ir_version", "release"),
    [
        (7, 3, (0, 1)),
        (9, 4, (0, 4)),
        (13, 7, (1, 6)),
        (13, 8, (1, 9)),
        (18, 8, (1, 14)),
        (18, 10, (1, 18)),
        (21, 10, (1, 18)),
        (26, 13, (1, 25)),
        (27, 10, (1, 32)),
        (29, 10, None),
        (20, 99, None),
    ],
)
def test_the_first_release_loads_opset_and_ir_version(
    opset: int, ir_version: int, release: tuple[int, int] | None
) -> None:
    assert find_first_release(opset, ir_version) == release


def test_a_lower_ir_version_helps_only_if_the_opset_is_older() -> None:
    assert find_older_release(18, 10) == ReleaseLimits((1, 14), 18, 8)
    assert find_older_release(21, 10) is None
    assert find_older_release(13, 7) is None
    # No release loads IR version 99; the opset only needs 1.14.
    assert find_older_release(18, 99) == ReleaseLimits((1, 14), 18, 8)
    assert find_older_release(29, 10) is None


def test_a_release_is_formatted_with_two_numbers() -> None:
    assert format_release((1, 18)) == "1.18"
