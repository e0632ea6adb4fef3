"""Split off; to be described."""

from __future__ import annotations

import torch

#: The minor versions whose private modules were looked at.
_KNOWN = ((2, 13),)


def is_known_torch() -> bool:
    """Whether the private modules of the installed torch are the ones this module knows."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) in _KNOWN


def list_known_versions() -> tuple[str, ...]:
    """The minor versions of torch that this module knows: `2.13`."""
    return tuple(f"{major}.{minor}" for major, minor in _KNOWN)
