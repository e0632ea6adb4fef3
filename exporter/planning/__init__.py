"""Plan a run: its cells, their routes, the selection and the expected failures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected cells; an empty field selects everything."""

    patterns: tuple[str, ...] = ()
    """Globs over cell ids, segment by segment: `alexnet`, `alexnet/1?`, `*/*/cuda`."""
    tags: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    opsets: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    last_failed: bool = False
    """Only cells that are red in their last result. Only exports select by results and by git."""
    changed: str = ""
    """Only cells with a change since this revision of git, or ""."""

    @property
    def is_everything(self) -> bool:
        return self == EVERYTHING


EVERYTHING = Selection()
