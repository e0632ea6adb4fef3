"""The tables of an entry with conditions of cells: `expect` and `skip`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from exporter.manifest.schema.fields import CheckNames, Day, Line, OpsetCondition
from exporter.manifest.schema.tables import Table
from exporter.manifest.schema.versions import VersionRange


class ExpectTable(Table):
    """A foreseen failure. Strict: if the cell passes or fails otherwise, it is red."""

    opset: OpsetCondition | None = None
    """The opsets: `13`, `"<14"`, `">=18"`, `"9..13"`, a list of these, `"*"`; without it: all."""
    device: Line = "*"
    """The devices: a name, or a pattern such as `"cu*"`, in all toolchains."""
    toolchain: Line = "*"
    """The toolchains: a name or a pattern. `"current"` is the project's own packages."""
    stage: Literal["source", "capture", "convert", "structure", "load", "parity"] | None = None
    """The stage that fails; without it: any stage."""
    check: CheckNames | None = None
    """The checks that fail: `"parity"` or `["parity", "values"]`. Every check that does not pass
    must be named, in this or another expectation. Without it: a stage fails without a check."""
    match: Line = Field(default="")
    """A part of the message of each of these checks, or of the stage, in any case."""
    reason: Line
    """The reason why the failure is accepted."""
    issue: Line = Field(default="")
    """The issue that tracks it."""
    until: Day = Field(default="")
    """The last day on which it is accepted; without it there is no end."""
    torch: VersionRange = Field(default="")
    """The versions of torch with which it fails: `"<2.14"`, `">=2.12, <2.14"`. With other versions,
    such as in `exporter rehearse`, the cell must pass. `==2.13` includes 2.13.1, and a nightly
    build counts as its release. Without it: all versions."""


class SkipTable(Table):
    """Cells that are not run. The report shows the reason."""

    opset: OpsetCondition | None = None
    """The opsets, as for `expect`."""
    device: Line = "*"
    """The devices, as for `expect`."""
    toolchain: Line = "*"
    """The toolchains, as for `expect`."""
    reason: Line
    """The reason why they are not run."""
