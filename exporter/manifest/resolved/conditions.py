"""Conditions that select cells of a model, and the settings that use them."""

from __future__ import annotations

from exporter.core.frozen_model import FrozenModel, Items


class Condition(FrozenModel):
    """A selection of cells of the model."""

    opsets: Items[int] | None = None
    """None: every opset."""
    device: str = "*"
    """A glob over device names. Without `@`, it matches a device in all toolchains."""
    toolchain: str = "*"
    """A glob over toolchains; `current` is the name of the project's own packages."""


class Expectation(Condition):
    """A foreseen failure. Strict: if the cell passes or fails otherwise, it is red."""

    stage: str | None = None
    checks: tuple[str, ...] = ()
    """The checks that fail; empty for a stage that fails without a check."""
    match: str = ""
    reason: str
    issue: str = ""
    until: str = ""
    """The last day (ISO 8601) on which the failure is accepted; empty if it has no end."""
    torch: str = ""
    """The versions of torch with which it fails; empty: all."""


class Skip(Condition):
    """Cells that are not run. The report shows the reason."""

    reason: str
