"""The baseline after a person has accepted all or some of what was found.

In: the baseline before, the outcomes of today, which cells are accepted, and why. Out: the
`Baseline`. Pure.

A cell that is as it was keeps its line, figures and reason with it: figures that hop about within
the limits of drift make no diff, and cannot creep from one acceptance to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from exporter.gate.drift import is_steady
from exporter.manifest import Gate, GatePolicy
from exporter.records.baseline import Baseline, CellOutcome


def accept_all(
    before: Baseline, found: Mapping[str, CellOutcome], tools: Mapping[str, str], gate: Gate
) -> Baseline:
    """Accepts every outcome; what is not among them is accepted no longer."""
    known = before.by_cell()
    policies = {model: gate.of(model) for model in {each.id.model for each in found.values()}}
    outcomes = (
        _accepted(known.get(cell), outcome, policies[outcome.id.model])
        for cell, outcome in found.items()
    )
    return _baseline(outcomes, tools)


def accept_some(
    before: Baseline, found: Mapping[str, CellOutcome], cells: Collection[str], reason: str
) -> Baseline:
    """Accepts these cells with a reason; all others stay as they were accepted.

    Args:
        before: What was accepted.
        found: Today's outcomes of what the manifests promise; one of `cells` that is not among
            them is accepted no longer.
        cells: The text of each accepted cell.
        reason: Why; kept with each of them.
    """
    outcomes = {cell: each for cell, each in before.by_cell().items() if cell not in cells}
    dropped = {cell: said for cell, said in before.dropped.items() if cell not in found}
    for cell in cells:
        if cell in found:
            outcomes[cell] = found[cell].model_copy(update={"reason": reason})
        else:
            dropped[cell] = reason
    # The tools are those that all lines were found with: of a part alone that is not known.
    return _baseline(outcomes.values(), before.tools, dropped)


def _baseline(
    outcomes: Iterable[CellOutcome],
    tools: Mapping[str, str],
    dropped: Mapping[str, str] | None = None,
) -> Baseline:
    cells = sorted(outcomes, key=lambda outcome: outcome.id.sort_key)
    return Baseline(
        tools=dict(sorted(tools.items())),
        cells=tuple(cells),
        dropped=dict(sorted((dropped or {}).items())),
    )


def _accepted(before: CellOutcome | None, after: CellOutcome, policy: GatePolicy) -> CellOutcome:
    if before is not None and bare(before) == bare(after) and is_steady(before, after, policy):
        return before
    return after


def bare(outcome: CellOutcome) -> CellOutcome:
    """The outcome without figures and reason: what a person accepts or not."""
    return outcome.model_copy(update={"figures": None, "reason": ""})
