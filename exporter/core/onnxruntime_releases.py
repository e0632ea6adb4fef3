"""Which release of ONNX Runtime loads a file, by its opset and its IR version.

In: the opset and the IR version of a file. Out: the first release that loads it, and whether the IR
version alone keeps it from older ones.

Facts, no guesses: up to 1.14 the table of ONNX Runtime's documentation (onnxruntime.ai, reference,
compatibility); from 1.15 on, what each release's own Python package loads of files that differ in
these two numbers alone. Operators that a release has no kernel for are another matter, and custom
domains too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

Release = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ReleaseLimits:
    """What a release of ONNX Runtime loads at most."""

    release: Release
    opset: int
    ir_version: int


#: Releases in order; of those that load the same, the first.
RELEASES: tuple[ReleaseLimits, ...] = (
    ReleaseLimits((0, 1), 8, 3),
    ReleaseLimits((0, 3), 9, 3),
    ReleaseLimits((0, 4), 10, 5),
    ReleaseLimits((1, 0), 11, 6),
    ReleaseLimits((1, 3), 12, 7),
    ReleaseLimits((1, 6), 13, 7),
    ReleaseLimits((1, 8), 14, 7),
    ReleaseLimits((1, 9), 15, 8),
    ReleaseLimits((1, 11), 16, 8),
    ReleaseLimits((1, 12), 17, 8),
    ReleaseLimits((1, 14), 18, 8),
    ReleaseLimits((1, 15), 19, 9),
    ReleaseLimits((1, 17), 20, 9),
    ReleaseLimits((1, 18), 21, 10),
    ReleaseLimits((1, 21), 22, 10),
    ReleaseLimits((1, 23), 23, 11),
    ReleaseLimits((1, 24), 25, 13),
    ReleaseLimits((1, 25), 26, 13),
)


@cache
def find_first_release(opset: int, ir_version: int) -> Release | None:
    """The first release that loads such a file; None where none that is known does."""
    loads = (each for each in RELEASES if each.opset >= opset and each.ir_version >= ir_version)
    return next((each.release for each in loads), None)


def find_older_release(opset: int, ir_version: int) -> ReleaseLimits | None:
    """What a lower IR version would gain: the first release for the opset alone.

    Returns:
        That release, and the highest IR version that it loads; None where the opset needs a release
        as new as the IR version does.
    """
    first = find_first_release(opset, 0)
    if first is None or first == find_first_release(opset, ir_version):
        return None
    return next(each for each in RELEASES if each.release == first)


def format_release(release: Release) -> str:
    """`1.18`."""
    return f"{release[0]}.{release[1]}"
