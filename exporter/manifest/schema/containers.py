"""The tables that say what the call of a model is made of, besides its inputs and constants.

In: what tomli read. Out: frozen, typed tables. The conventions are those of `entry.py`.
"""

from __future__ import annotations

from pydantic import Field

from exporter.manifest.schema.fields import At, Line, Repeat
from exporter.manifest.schema.tables import Table


class ContainerTable(Table):
    """A tuple, list, dict or object in the call, which holds what has its place inside it."""

    at: At
    """Where it stands: `"kwargs.past"`, `"args[1][0]"`. Where no input or constant has its place
    inside, it is empty."""
    type: Line
    """`"list"`, `"tuple"`, `"dict"`, or a class or function: `"file.py:name"`, relative to the
    manifest, or `"package.module:name"`. It is called with what stands at its positions, or by
    keyword with what stands under its keys, as dataclasses and named tuples are made."""
    repeat: Repeat = Field(default_factory=dict)
    """As for inputs: `{layer}` in `at`."""
