"""The request to show a graph; the response is text."""

from __future__ import annotations

from typing import Literal

from exporter.core.frozen_model import FrozenModel

#: `scopes`: the module of each node.
GraphForm = Literal["text", "html", "scopes"]


class GraphRequest(FrozenModel):
    """A request to show one file."""

    path: str
    """Absolute."""
    form: GraphForm
