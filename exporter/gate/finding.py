"""What the gate finds: `GateFinding`s, each of a `FindingKind`, with what the policy makes of it.

In: nothing. Out: `FindingKind`, `GateFinding`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from exporter.manifest import Action, GatePolicy
from exporter.records.record import CellId

#: What `GateFinding.before` and `GateFinding.after` say where there is no outcome.
NOT_ACCEPTED = "not in the baseline"
NO_RESULT = "no result"


class FindingKind(StrEnum):
    """How a cell differs from its accepted outcome; the worst first."""

    NEWLY_RED = "newly red"
    EXPIRED = "expectation expired"
    """Was foreseen, and the day of the expectation is over."""
    MISSING = "missing"
    """Accepted or promised, and without a result; or accepted and no longer promised."""
    RELAXED = "contract relaxed"
    """A tolerance, an expectation, a skip or a policy lets more pass than the revision's."""
    WORSE = "worse failure"
    """Red before and now: at an earlier stage, or dead where it only failed."""
    FLAKY = "flaky"
    """Another verdict for the very same inputs."""
    XPASS = "passes unexpectedly"
    """The manifest still expects a failure."""
    NEWLY_UNAVAILABLE = "newly unavailable"
    NEWLY_SKIPPED = "newly skipped"
    NEWLY_EXPECTED = "newly expected to fail"
    """Was not `xfail` and is now."""
    NEW_RED = "new cell, red"
    CHANGED = "failure changed"
    """Another check or kind of failure, no better and no worse."""
    BETTER = "further than before"
    """Red before and now: at a later stage, or failing where it died."""
    REROUTED = "another exporter"
    """Or the same by another capture."""
    ERROR_GROWN = "error grown"
    FILE_GROWN = "file grown"
    NODES_GROWN = "nodes grown"
    LATENCY_GROWN = "latency grown"
    """Of the file, as a multiple of PyTorch's in the same run."""
    NEW_DOMAIN = "new domain"
    FLOOR_RAISED = "needs a newer ONNX Runtime"
    LOWEST_RAISED = "lowest opset raised"
    FIXED = "fixed"
    NEW_GREEN = "new cell, green"

    @property
    def key(self) -> str:
        """Its key in `[tool.exporter.gate]`."""
        return self.name.lower()

    def action(self, policy: GatePolicy) -> Action:
        """What the policy makes of it."""
        found: Action = getattr(policy, self.key)
        return found


#: Kinds whose `before` and `after` are figures, other ones for each cell.
GROWTH_KINDS = frozenset(
    {
        FindingKind.ERROR_GROWN,
        FindingKind.FILE_GROWN,
        FindingKind.NODES_GROWN,
        FindingKind.LATENCY_GROWN,
    }
)
_RANK = {kind: rank for rank, kind in enumerate(FindingKind)}
_NEWS = (FindingKind.BETTER, FindingKind.FIXED, FindingKind.NEW_GREEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinding:
    """One cell that is not as it was accepted."""

    kind: FindingKind
    cell: CellId
    before: str
    """`pass`, `error at convert`, `fail at parity (axes)`, or `NOT_ACCEPTED`."""
    after: str
    """The same, or `NO_RESULT`."""
    message: str = ""
    """One line: what the record says, or what to do."""
    action: Action = "block"
    """What the policy makes of it; what is ignored is no finding."""

    @property
    def blocks(self) -> bool:
        """Whether a merge must stop for it."""
        return self.action == "block"

    @property
    def is_good_news(self) -> bool:
        """Whether accepting it is all there is to do."""
        return self.kind in _NEWS

    @property
    def sort_key(self) -> tuple[bool, int, tuple[str, int, str], str]:
        """What blocks first, then the worst kind, then by cell."""
        return (not self.blocks, _RANK[self.kind], self.cell.sort_key, self.before)


def select_blocking(findings: Iterable[GateFinding]) -> tuple[GateFinding, ...]:
    """The findings for which a merge must stop."""
    return tuple(finding for finding in findings if finding.blocks)
