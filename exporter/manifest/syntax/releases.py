"""The releases of ONNX Runtime, and the highest opset and IR version that each one loads.

Sources: up to 1.14 the compatibility table of ONNX Runtime's documentation (onnxruntime.ai); from
1.15 on, tests with the Python package of each release, with files that differ in these two numbers
only. The packages `onnxruntime-web` 1.17 to 1.25 and 1.30 have the same limits by the same test.
Missing kernels and custom domains are not considered.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

Release = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ReleaseLimits:
    """The highest opset and IR version that a release of ONNX Runtime loads."""

    release: Release
    opset: int
    ir_version: int


#: Releases in order; if several have the same limits, only the first.
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
    ReleaseLimits((1, 32), 28, 14),
)


@cache
def find_first_release(opset: int, ir_version: int) -> Release | None:
    """Return the first release that loads such a file, or None if no known release does."""
    matches = (each for each in RELEASES if each.opset >= opset and each.ir_version >= ir_version)
    return next((each.release for each in matches), None)


def find_older_release(opset: int, ir_version: int) -> ReleaseLimits | None:
    """Return the older release that would load the file with a lower IR version.

    Returns:
        The first release for the opset, with the highest IR version that it loads. None if the
        opset needs a release as new as the IR version does.
    """
    first = find_first_release(opset, 0)
    if first is None or first == find_first_release(opset, ir_version):
        return None
    return next(each for each in RELEASES if each.release == first)


def find_limits(release: Release) -> ReleaseLimits | None:
    """Return the limits of a release, or None if it is older than the table.

    A release that is newer than the table loads what the last known release does.
    """
    earlier = [each for each in RELEASES if each.release <= release]
    return earlier[-1] if earlier else None


def format_release(release: Release) -> str:
    return f"{release[0]}.{release[1]}"
