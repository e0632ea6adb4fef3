"""The findings of the gate: one class, and the kinds of findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from exporter.core.errors import Location
from exporter.gate.cause import Cause
from exporter.manifest import Action, GatePolicy
from exporter.records.record import CellId

#: Values of `GateFinding.before` and `GateFinding.after` if there is no outcome.
NOT_ACCEPTED = "not in the baseline"
NO_RESULT = "no result"


class FindingKind(StrEnum):
    """The ways in which a cell differs from its accepted outcome; the worst first."""

    NEWLY_RED = "newly red"
    EXPIRED = "expectation expired"
    """The failure was foreseen, and the expectation has expired."""
    MISSING = "missing"
    """Accepted or promised, but without a result; or accepted and no longer promised."""
    RELAXED = "contract relaxed"
    """The manifests promise less than those of the revision."""
    REDEFINED = "model redefined"
    """The manifests define another model, export or data than those of the revision."""
    WORSE = "worse failure"
    """Red before and now: at an earlier stage, a crash instead of a failure, or more checks."""
    FLAKY = "flaky"
    """Two runs with the same inputs had different verdicts."""
    XPASS = "passes unexpectedly"
    """The manifest still expects a failure."""
    NEWLY_UNAVAILABLE = "newly unavailable"
    NEWLY_SKIPPED = "newly skipped"
    NEWLY_EXPECTED = "newly expected to fail"
    """`xfail` now, but not before."""
    NEW_RED = "new cell, red"
    CHANGED = "failure changed"
    """Different checks or another kind of failure, neither better nor worse."""
    BETTER = "further than before"
    """Red before and now: at a later stage, a failure instead of a crash, or fewer checks."""
    REROUTED = "another exporter"
    """A different exporter or a different capture."""
    ERROR_GROWN = "error grown"
    FILE_GROWN = "file grown"
    NODES_GROWN = "nodes grown"
    LATENCY_GROWN = "latency grown"
    """The latency of the file, as a multiple of PyTorch's in the same run, has grown."""
    LOAD_GROWN = "load time grown"
    """The load time, as a multiple of that of a file with one node, has grown."""
    MEMORY_GROWN = "memory grown"
    """The peak memory, as a multiple of the size of the file, has grown."""
    NEW_DOMAIN = "new domain"
    FLOOR_RAISED = "needs a newer ONNX Runtime"
    LOWEST_RAISED = "lowest opset raised"
    FIXED = "fixed"
    NEW_GREEN = "new cell, green"

    @property
    def key(self) -> str:
        """The key of this kind in `[tool.exporter.gate]`."""
        return self.name.lower()

    def find_action(self, policy: GatePolicy) -> Action:
        """Return the action that the policy defines for this kind."""
        action: Action = getattr(policy, self.key)
        return action


#: Kinds with figures in `before` and `after`, which differ from cell to cell.
GROWTH_KINDS = frozenset(
    {
        FindingKind.ERROR_GROWN,
        FindingKind.FILE_GROWN,
        FindingKind.NODES_GROWN,
        FindingKind.LATENCY_GROWN,
    }
)
#: Kinds that compare two outcomes or figures of a cell with equal promises.
CAUSED_KINDS = frozenset(
    {
        *(FindingKind.NEWLY_RED, FindingKind.WORSE, FindingKind.CHANGED, FindingKind.FLAKY),
        *(FindingKind.REROUTED, FindingKind.ERROR_GROWN, FindingKind.FILE_GROWN),
        *(FindingKind.NODES_GROWN, FindingKind.LATENCY_GROWN, FindingKind.LOAD_GROWN),
        *(FindingKind.MEMORY_GROWN, FindingKind.NEW_DOMAIN, FindingKind.FLOOR_RAISED),
        FindingKind.LOWEST_RAISED,
    }
)
_RANK = {kind: rank for rank, kind in enumerate(FindingKind)}
_IMPROVEMENTS = (FindingKind.BETTER, FindingKind.FIXED, FindingKind.NEW_GREEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetting:
    """A key of the gate's policy that a branch makes less strict."""

    location: Location
    """The key in pyproject.toml, or its table if the branch removed the key."""
    cells: tuple[CellId, ...]
    """The cells for which the policy is less strict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinding:
    """One cell that differs from its accepted outcome."""

    kind: FindingKind
    cell: CellId
    before: str
    """`pass`, `error at convert`, `fail at parity (axes)`, or `NOT_ACCEPTED`."""
    after: str
    """The same notation, or `NO_RESULT`."""
    message: str = ""
    """One line: the message of the record, or the fix."""
    action: Action = "block"
    """The action that the policy defines; an ignored difference has no finding."""
    cause: Cause | None = None
    """The edits since the acceptance, if they are known."""
    setting: PolicySetting | None = None
    """The setting of the gate, if the finding is about one; `cell` is then the first cell."""

    @property
    def cells(self) -> tuple[CellId, ...]:
        """The affected cells."""
        return self.setting.cells if self.setting else (self.cell,)

    @property
    def reason(self) -> str:
        """The cause, then the message."""
        return ". ".join(text for text in (str(self.cause or ""), self.message) if text)

    @property
    def is_blocking(self) -> bool:
        """Whether the finding prevents a merge."""
        return self.action == "block"

    @property
    def is_improvement(self) -> bool:
        """Whether the user only has to accept the finding."""
        return self.kind in _IMPROVEMENTS

    @property
    def sort_key(self) -> tuple[bool, int, tuple[str, int, str], str]:
        """Order: blocking findings first, then the worst kind, then the cell."""
        return (not self.is_blocking, _RANK[self.kind], self.cell.sort_key, self.before)


def select_blocking(findings: Iterable[GateFinding]) -> tuple[GateFinding, ...]:
    """Return the findings that prevent a merge."""
    return tuple(finding for finding in findings if finding.is_blocking)
