"""Which ONNX Runtime loads a file: the table, and what a lower IR version gains."""

from __future__ import annotations

from itertools import pairwise

import pytest

from exporter.core.onnxruntime_releases import (
    ONNX_RUNTIME,
    Loads,
    first_release,
    lower_ir_version,
    spelled,
)


def test_later_releases_load_all_that_earlier_ones_do() -> None:
    for earlier, later in pairwise(ONNX_RUNTIME):
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
        (27, 10, None),
        (20, 99, None),
    ],
)
def test_the_first_release_loads_opset_and_ir_version(
    opset: int, ir_version: int, release: tuple[int, int] | None
) -> None:
    assert first_release(opset, ir_version) == release


def test_a_lower_ir_version_is_worth_it_where_it_alone_is_new() -> None:
    assert lower_ir_version(18, 10) == Loads((1, 14), 18, 8)
    assert lower_ir_version(21, 10) is None
    assert lower_ir_version(13, 7) is None
    # Nothing loads IR version 99; the opset alone would do with 1.14.
    assert lower_ir_version(18, 99) == Loads((1, 14), 18, 8)
    assert lower_ir_version(27, 10) is None


def test_releases_are_spelled_as_people_do() -> None:
    assert spelled((1, 18)) == "1.18"
