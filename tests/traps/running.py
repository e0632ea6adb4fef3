"""Traps as parameters of a test, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec

import pytest
from _pytest.mark import ParameterSet

from tests.traps.trap import Trap


def parameters(traps: Iterable[Trap]) -> list[ParameterSet]:
    """Return a parameter for each trap. A trap with a gap must fail, so a closed gap is noticed."""
    return [
        pytest.param(
            trap,
            id=trap.name,
            marks=[*_list_marks(trap)],
        )
        for trap in traps
    ]


def _list_marks(trap: Trap) -> Iterator[pytest.MarkDecorator]:
    if trap.gap:
        yield pytest.mark.xfail(reason=trap.gap, strict=True)
    if trap.package and find_spec(trap.package) is None:
        yield pytest.mark.skip(reason=f"{trap.package} is not installed; see the session `zoo`")
