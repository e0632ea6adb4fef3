"""The findings of the gate, and the policy that decides which of them block a merge."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items

#: The gate fails, prints a warning and passes, or ignores the finding; the strictest first.
Action = Literal["block", "warn", "ignore"]
ACTIONS: tuple[Action, ...] = ("block", "warn", "ignore")


class FindingKind(StrEnum):
    """The ways in which a cell differs from its accepted outcome; the worst first."""

    NEWLY_RED = "newly red"
    """The cell was not red and is red now."""
    MISSING = "missing"
    """The cell is promised and has no result."""
    REMOVED = "promise removed"
    """The cell is accepted and no longer promised."""
    RELAXED = "contract relaxed"
    """With `--against`: a tolerance, an expectation, a skip or a policy lets more pass, or weights
    or their hash are no longer named. Always: weights were loaded and are initial values now."""
    REDEFINED = "model redefined"
    """With `--against`: the entry has another source, other weights, options or data. The cells are
    proved, but for another model than the accepted one."""
    CONTRACT = "contract changed"
    """The entry differs from the one with which the cells were accepted, weights were initial
    values and are loaded now, or with `--against` the branch's baseline has another outcome than
    the result. Blocks until it is accepted."""
    WORSE = "worse failure"
    """The cell was red before, and fails now at an earlier stage or dies."""
    FLAKY = "flaky"
    """Two runs with the same inputs had different verdicts."""
    XPASS = "passes unexpectedly"
    """The cell passes although the manifest expects a failure."""
    NEWLY_UNAVAILABLE = "newly unavailable"
    """The machine can no longer run the cell."""
    EVIDENCE = "evidence missing"
    """A measurement of another machine is red; or `[tool.exporter.evidence]` requires one, and it
    is missing, stale or too old."""
    NEWLY_SKIPPED = "newly skipped"
    """The manifest skips the cell now."""
    NEWLY_EXPECTED = "newly expected to fail"
    """The cell fails as the manifest now expects."""
    NEW_RED = "new cell, red"
    """The cell is red and not in the baseline."""
    CHANGED = "failure changed"
    """Another check or kind of failure, neither better nor worse."""
    BETTER = "further than before"
    """The cell was red before and fails now at a later stage. Blocks until it is accepted."""
    REROUTED = "another exporter"
    """Another exporter or another capture created the file."""
    ERROR_GROWN = "error grown"
    """The error, as a multiple of the allowed error, grew by the limit (4 times)."""
    FILE_GROWN = "file grown"
    """The file with its external data grew by the limit (1.05 times), and by 4 kB."""
    NODES_GROWN = "nodes grown"
    """The number of nodes grew by the limit (1.05 times)."""
    LATENCY_GROWN = "latency grown"
    """With `measure = ["latency"]`: the file's time, as a multiple of PyTorch's in the same run,
    grew by the limit (2 times). Other load on the machine changes it by up to a half."""
    LOAD_GROWN = "load time grown"
    """With `measure = ["load"]`: the load time, as a multiple of that of a file with one node,
    grew by the limit (2 times)."""
    MEMORY_GROWN = "memory grown"
    """With `measure = ["memory"]`: the peak memory, as a multiple of the size of the file, grew by
    the limit (1.5 times)."""
    NEW_DOMAIN = "new domain"
    """The file has an operator of a domain that it did not have."""
    FLOOR_RAISED = "needs a newer ONNX Runtime"
    """The oldest ONNX Runtime that loads the file is a newer release."""
    LOWEST_RAISED = "lowest opset raised"
    """The lowest opset from which all cells of the model pass is higher."""
    FIXED = "fixed"
    """The cell passes now. Blocks until it is accepted, because only then can the gate notice a
    later loss."""
    NEW_GREEN = "new cell, green"
    """The cell is green and not in the baseline. Blocks until it is accepted."""
    ACCEPTED_HERE = "accepted here"
    """With `--against`: the branch's own baseline accepts a loss with a reason. In no list, it
    passes if an owner of the baseline approves the pull request; in `warn`, with the reason alone;
    in `block`, none passes."""

    @property
    def key(self) -> str:
        """The name of this kind in the lists of `[tool.exporter.gate]`."""
        return self.name.lower()

    @property
    def default_action(self) -> Action:
        return "warn" if self is FindingKind.REDEFINED or self in DRIFT else "block"


#: The findings by their names in the lists.
FINDINGS: Mapping[str, FindingKind] = {kind.key: kind for kind in FindingKind}
#: The factors by which figures may grow.
LIMITS: Mapping[FindingKind, float] = {
    FindingKind.ERROR_GROWN: 4.0,
    FindingKind.FILE_GROWN: 1.05,
    FindingKind.NODES_GROWN: 1.05,
    FindingKind.LATENCY_GROWN: 2.0,
    FindingKind.LOAD_GROWN: 2.0,
    FindingKind.MEMORY_GROWN: 1.5,
}
#: Other properties of a file than the accepted ones, with the same verdict.
DRIFT = frozenset(
    {*LIMITS, FindingKind.NEW_DOMAIN, FindingKind.FLOOR_RAISED, FindingKind.LOWEST_RAISED}
)


class GatePolicy(FrozenModel):
    """The actions of the findings, and the limits of drift."""

    actions: dict[FindingKind, Action] = Field(default_factory=dict)
    """The actions of the findings in the lists; others have their default."""
    limits: dict[FindingKind, float] = Field(default_factory=dict)
    """The limits that are set."""

    def find_action(self, kind: FindingKind) -> Action:
        return self.actions.get(kind, kind.default_action)

    @property
    def needs_approval(self) -> bool:
        """Whether a loss that the branch accepts with a reason passes with an approval."""
        return FindingKind.ACCEPTED_HERE not in self.actions

    def find_limit(self, kind: FindingKind) -> float:
        return self.limits.get(kind, LIMITS[kind])


class ModelPolicy(GatePolicy):
    """The settings of `[tool.exporter.gate.models.NAME]`."""

    models: str
    """A glob over IDs."""


class Gate(FrozenModel):
    """The policy of every model."""

    policy: GatePolicy = GatePolicy()
    models: Items[ModelPolicy] = ()
    """In the order of the settings: if two match a model, the later one wins."""
    lines: dict[str, int] = Field(default_factory=dict)
    """The lines of findings and limits in pyproject.toml: `fixed`, `models.NAME.fixed`,
    `limits.file_grown`; the table is ``."""
    former_ids: dict[str, str] = Field(default_factory=dict)
    """The ID of each renamed model -> the ID that the patterns of this policy match."""

    def find_policy(self, model_id: str) -> GatePolicy:
        policy = self.policy
        model_id = self.former_ids.get(model_id, model_id)
        for each in self.models:
            if fnmatchcase(model_id, each.models):
                actions, limits = policy.actions | each.actions, policy.limits | each.limits
                policy = GatePolicy(actions=actions, limits=limits)
        return policy

    def find_line(self, model_id: str, key: str) -> int | None:
        """Return the line of a finding or limit for a model; that of the table if it has none."""
        model_id = self.former_ids.get(model_id, model_id)
        names = [each.models for each in self.models if fnmatchcase(model_id, each.models)]
        keys = [f"models.{name}.{key}" for name in reversed(names)]
        return next((self.lines[each] for each in (*keys, key, "") if each in self.lines), None)


#: The policy of a project without settings of the gate.
DEFAULT_GATE = Gate()
