"""The gate's policy: which findings stop a merge, and from which size on something has drifted.

In: nothing. Out: `GatePolicy`, and `Gate`, which knows the policy of each model. `settings.py`
makes the tables of `[tool.exporter.gate]` from the same class, so that each key is named once.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items

#: What the gate does with a finding: fail, say it and pass, or say nothing.
Action = Literal["block", "warn", "ignore"]
_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class GatePolicy(FrozenModel):
    """What becomes of each kind of finding, and the sizes from which on something has drifted."""

    newly_red: Action = "block"
    """Was not red and is now."""
    expired: Action = "block"
    """Was a foreseen failure, and the expectation's day is over."""
    missing: Action = "block"
    """Accepted or promised, and without a result; or accepted and no longer promised."""
    relaxed: Action = "block"
    """With `--against`: a tolerance, an expectation, a skip or a policy that lets more pass."""
    worse: Action = "block"
    """Red before and now: at an earlier stage, or dead where it only failed."""
    flaky: Action = "block"
    """Another verdict for the very same inputs, in two runs."""
    xpass: Action = "block"
    """Passes, and the manifest expects a failure."""
    newly_unavailable: Action = "block"
    """Nothing on this machine can run it any more."""
    newly_skipped: Action = "block"
    """The manifest skips it now."""
    newly_expected: Action = "block"
    """Fails as the manifest now foresees."""
    new_red: Action = "block"
    """Not in the baseline, and red."""
    changed: Action = "block"
    """Another check or kind of failure, no better and no worse."""
    better: Action = "block"
    """Red before and now, at a later stage; until it is accepted."""
    rerouted: Action = "block"
    """Another exporter made the file, or the same by another capture."""
    error_grown: Action = "warn"
    """The error, as a multiple of what is allowed, is larger by `error_factor`."""
    file_grown: Action = "warn"
    """The file with its external data is larger by the share `file_growth`, and by 4 kB."""
    nodes_grown: Action = "warn"
    """The graph has more nodes by the share `node_growth`."""
    latency_grown: Action = "warn"
    """Where the manifest asks for `latency`: the file's time, as a multiple of PyTorch's in the
    same run, is larger by `latency_factor`."""
    new_domain: Action = "warn"
    """An operator of a domain that the file had none of."""
    floor_raised: Action = "warn"
    """The oldest ONNX Runtime that loads the file is a newer one."""
    lowest_raised: Action = "warn"
    """The lowest opset from which on every cell of the model passes is a higher one."""
    fixed: Action = "block"
    """Passes now; until it is accepted, so that it cannot be lost again unseen."""
    new_green: Action = "block"
    """Not in the baseline, and green; until it is accepted."""
    accepted_here: Action = "block"
    """With `--against`: what the branch's own baseline accepts with a reason. Where this is `warn`,
    a reviewed reason lets a loss pass; `block` lets none."""
    error_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 4.0
    """How many times as large the error has to be."""
    error_floor: _Share = 0.1
    """Errors up to this share of what is allowed are no drift, whatever they were."""
    latency_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """How many times as large that multiple has to be; other load makes it differ by a half."""
    file_growth: _Share = 0.05
    """0.05 is 5 %."""
    node_growth: _Share = 0.05
    """0.05 is 5 %."""


class ModelPolicy(FrozenModel):
    """What the settings say of some models."""

    models: str
    """A glob over IDs."""
    values: dict[str, Action | float]
    """The keys of `GatePolicy` that are set."""


class Gate(FrozenModel):
    """The policy of every model."""

    policy: GatePolicy = GatePolicy()
    models: Items[ModelPolicy] = ()
    """In the order of the settings: of two that mean a model, the later one wins."""

    def find_policy(self, model: str) -> GatePolicy:
        """The policy of one model."""
        said: dict[str, object] = {}
        for each in self.models:
            if fnmatchcase(model, each.models):
                said |= each.values
        return self.policy.model_copy(update=said) if said else self.policy


#: The policy of a project that says nothing.
DEFAULT_GATE = Gate()
