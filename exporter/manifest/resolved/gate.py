"""The gate's policy: the findings that stop a merge, and the thresholds of drift.

`schema/settings.py` derives the tables of `[tool.exporter.gate]` from `GatePolicy`, so each key is
defined once.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items

#: The gate fails, prints a warning and passes, or ignores the finding.
Action = Literal["block", "warn", "ignore"]
_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class GatePolicy(FrozenModel):
    """The action for each kind of finding, and the thresholds of drift."""

    newly_red: Action = "block"
    """The cell was not red and is red now."""
    expired: Action = "block"
    """The failure was expected, and the expectation has expired."""
    missing: Action = "block"
    """The cell is accepted or promised and has no result, or it is accepted and no longer
    promised."""
    relaxed: Action = "block"
    """With `--against`: a tolerance, an expectation, a skip or a policy lets more pass."""
    redefined: Action = "warn"
    """With `--against`: the entry has another source, other weights, options or data. The cells are
    proved, but for another model than the accepted one."""
    worse: Action = "block"
    """The cell was red before, and fails now at an earlier stage or dies."""
    flaky: Action = "block"
    """Two runs with the same inputs had different verdicts."""
    xpass: Action = "block"
    """The cell passes although the manifest expects a failure."""
    newly_unavailable: Action = "block"
    """The machine can no longer run the cell."""
    evidence: Action = "block"
    """A measurement of another machine is red; or `[tool.exporter.evidence]` requires one, and it
    is missing, stale or too old."""
    newly_skipped: Action = "block"
    """The manifest skips the cell now."""
    newly_expected: Action = "block"
    """The cell fails as the manifest now expects."""
    new_red: Action = "block"
    """The cell is red and not in the baseline."""
    changed: Action = "block"
    """Another check or kind of failure, neither better nor worse."""
    better: Action = "block"
    """The cell was red before and fails now at a later stage. Blocks until it is accepted."""
    rerouted: Action = "block"
    """Another exporter or another capture created the file."""
    error_grown: Action = "warn"
    """The error, as a multiple of the allowed error, grew by `error_factor`."""
    file_grown: Action = "warn"
    """The file with its external data grew by the share `file_growth`, and by 4 kB."""
    nodes_grown: Action = "warn"
    """The number of nodes grew by the share `node_growth`."""
    latency_grown: Action = "warn"
    """With `measure = ["latency"]`: the file's time, as a multiple of PyTorch's in the same run,
    grew by `latency_factor`."""
    load_grown: Action = "warn"
    """With `measure = ["load"]`: the load time, as a multiple of that of a file with one node,
    grew by `load_factor`."""
    memory_grown: Action = "warn"
    """With `measure = ["memory"]`: the peak memory, as a multiple of the size of the file, grew by
    `memory_factor`."""
    new_domain: Action = "warn"
    """The file has an operator of a domain that it did not have."""
    floor_raised: Action = "warn"
    """The oldest ONNX Runtime that loads the file is a newer release."""
    lowest_raised: Action = "warn"
    """The lowest opset from which all cells of the model pass is higher."""
    fixed: Action = "block"
    """The cell passes now. Blocks until it is accepted, because only then can the gate notice a
    later loss."""
    new_green: Action = "block"
    """The cell is green and not in the baseline. Blocks until it is accepted."""
    accepted_here: Action = "block"
    """With `--against`: the branch's own baseline accepts a loss with a reason. `warn` lets a loss
    with a reviewed reason pass; `block` lets none pass."""
    error_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 4.0
    """The factor by which the error has to grow."""
    error_floor: _Share = 0.1
    """Errors up to this share of the allowed error are never drift."""
    latency_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """The factor by which that multiple has to grow. Other load on the machine changes it by up to
    a half."""
    load_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """The factor by which that multiple has to grow."""
    memory_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.5
    """The factor by which that multiple has to grow."""
    file_growth: _Share = 0.05
    """0.05 is 5 %."""
    node_growth: _Share = 0.05
    """0.05 is 5 %."""


class ModelPolicy(FrozenModel):
    """The settings of `[tool.exporter.gate.models.NAME]`."""

    models: str
    """A glob over IDs."""
    values: dict[str, Action | float]
    """The keys of `GatePolicy` that are set."""


class Gate(FrozenModel):
    """The policy of every model."""

    policy: GatePolicy = GatePolicy()
    models: Items[ModelPolicy] = ()
    """In the order of the settings: if two match a model, the later one wins."""
    lines: dict[str, int] = Field(default_factory=dict)
    """The lines of the keys in pyproject.toml: `fixed`, `models.NAME.fixed`; the table is ``."""

    def find_policy(self, model: str) -> GatePolicy:
        """Return the policy of one model."""
        values: dict[str, object] = {}
        for policy in self.models:
            if fnmatchcase(model, policy.models):
                values |= policy.values
        return self.policy.model_copy(update=values) if values else self.policy

    def find_line(self, model: str, key: str) -> int | None:
        """Return the line that sets a key for a model; that of the table if no line sets it."""
        names = [each.models for each in self.models if fnmatchcase(model, each.models)]
        keys = [f"models.{name}.{key}" for name in reversed(names)]
        return next((self.lines[each] for each in (*keys, key, "") if each in self.lines), None)


#: The policy of a project without settings of the gate.
DEFAULT_GATE = Gate()
