"""Traps as parameters of a test, by their names."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet

from tests.traps.trap import Trap


def parameters(traps: Iterable[Trap]) -> list[ParameterSet]:
    """Return a parameter for each trap. A trap with a gap must fail, so a closed gap is noticed."""
    return [
        pytest.param(
            trap,
            id=trap.name,
            marks=[pytest.mark.xfail(reason=trap.gap, strict=True)] if trap.gap else [],
        )
        for trap in traps
    ]
