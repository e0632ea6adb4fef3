"""The facts that runs of a model at several sizes show."""

from __future__ import annotations

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items, Plain
from exporter.manifest.resolved.call import Dim


class ProbeRequest(FrozenModel):
    """The questions about a model."""

    state: str = ""
    """The digest of the observed model; "" if it is unknown."""
    names: Items[dict[int, str]] = ()
    """For each input, the dynamic dimensions with their names, which may be empty."""
    is_free: bool = False
    """Whether all other dimensions are tried, too."""


class ProbedOutput(FrozenModel):
    """One output of the model."""

    name: str
    """The key of a dict; "" if it has none."""
    dtype: str
    shape: Items[Dim]


class ProbeResult(FrozenModel):
    """The facts."""

    problem: str = ""
    """Why the model does not run; "" if it runs."""
    is_same: bool = True
    """Whether the model has the weights and submodules of the observed one."""
    inputs: Items[Items[Dim]] = ()
    """The shapes, with the names of axes."""
    outputs: Items[ProbedOutput] = ()
    axes: dict[str, dict[str, Plain]] = Field(default_factory=dict)
    """Limits and derivations, as in the manifest."""
    rows: dict[str, int] = Field(default_factory=dict)
    """For inputs of integers, the rows of the embedding that they select."""
    notes: Items[str] = ()
