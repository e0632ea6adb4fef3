"""The baseline after a user has accepted all or some findings.

If a cell is unchanged, its line stays with its figures and its reason. Figures within the limits
of drift therefore cause no diff and cannot grow step by step from one acceptance to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from exporter.gate.drift import has_same_figures
from exporter.manifest import Gate
from exporter.records.baseline import Baseline, CellOutcome
from exporter.records.record import CellId


def accept_all(
    before: Baseline, current: Mapping[CellId, CellOutcome], tools: Mapping[str, str], gate: Gate
) -> Baseline:
    """Accept every current outcome and remove all other cells."""
    known = before.by_cell()
    policies = {model: gate.find_policy(model) for model in {cell.model for cell in current}}
    outcomes = []
    for cell, after in current.items():
        old = known.get(cell)
        is_unchanged = (
            old is not None
            and strip_figures(old) == strip_figures(after)
            and has_same_figures(old, after, policies[cell.model])
        )
        outcomes.append(old if old is not None and is_unchanged else after)
    return _build_baseline(outcomes, tools, {})


def accept_some(
    before: Baseline, current: Mapping[CellId, CellOutcome], cells: Collection[CellId], reason: str
) -> Baseline:
    """Accept the given cells with a reason; all other cells keep their accepted outcome.

    Args:
        before: The old baseline.
        current: The outcomes of all promised cells. If a cell of `cells` is not among them, it is
            removed from the baseline.
        cells: The accepted cells.
        reason: The reason, which the baseline stores with each cell.
    """
    outcomes = {cell: each for cell, each in before.by_cell().items() if cell not in cells}
    dropped = {cell: text for cell, text in before.dropped.items() if cell not in current}
    for cell in cells:
        if cell in current:
            outcomes[cell] = current[cell].model_copy(update={"reason": reason})
        else:
            dropped[cell] = reason
    # The tools belong to all lines, so a partial update must not change them.
    return _build_baseline(outcomes.values(), before.tools, dropped)


def _build_baseline(
    outcomes: Iterable[CellOutcome], tools: Mapping[str, str], dropped: Mapping[CellId, str]
) -> Baseline:
    return Baseline(
        tools=dict(sorted(tools.items())),
        cells=tuple(sorted(outcomes, key=lambda outcome: outcome.cell.sort_key)),
        dropped=dict(dropped),
    )


def strip_figures(outcome: CellOutcome) -> CellOutcome:
    """Return the outcome without figures and reason: the part that a user accepts."""
    return outcome.model_copy(update={"figures": None, "reason": ""})
