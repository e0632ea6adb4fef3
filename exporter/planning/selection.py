"""What the user asked for, in the words of the command line.

In: nothing. Out: `Selection`. It needs no other module, so that a command knows what was asked for
before it loads what an answer may take.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user asked for; empty fields select everything."""

    patterns: tuple[str, ...] = ()
    """Globs over cell ids, segment by segment: `alexnet`, `alexnet/1?`, `*/*/cuda`."""
    tags: tuple[str, ...] = ()
    opsets: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether no cell is left out."""
        return self == EVERYTHING


EVERYTHING = Selection()
