"""What users write in `[[models.ID.overrides]]`: settings of some cells of a model.

In: what tomli read. Out: a frozen, typed table. The conventions are those of `entry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from exporter.core.frozen_model import Items
from exporter.manifest.schema.fields import Line, Name, OpsetCondition
from exporter.manifest.schema.tables import OptionsTable, Table, ToleranceTable
from exporter.manifest.spec.model import CaptureName

_ONE_MODEL = "one model serves all its cells; write another entry that `extends` this one"
_ONE_JOB = "one job makes all files of a model"
_OWN = "its items have an `opset` of their own"


class OutputOverride(Table):
    """The tolerance of one output."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("shape", "dtype", "kind"), _ONE_MODEL
    )

    name: Name
    """Its name in the file."""
    tolerance: ToleranceTable
    """In the place of the tolerance that it has elsewhere."""


class OverrideTable(Table):
    """Settings of some cells; of two that mean a cell the later wins; `options` are merged."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "axes", "cases", "constants", "containers", "description", "dynamic_axes",
                "export_device", "init", "inputs", "inputs_from", "mode", "owner", "parameters",
                "precision", "seed", "source", "tags", "weights", "weights_sha256",
            ),
            _ONE_MODEL,
        ),
        **dict.fromkeys(("latency", "memory", "thorough", "timeout"), _ONE_JOB),
        **dict.fromkeys(("custom_ops", "expect", "skip"), _OWN),
        "devices": "`device` says which devices are meant, `skip` leaves cells out",
        "extends": "each entry says for itself what it extends",
        "opsets": "`opset` says which opsets are meant, `skip` leaves cells out",
    }  # fmt: skip
    #: Keys of the file: one file of an opset serves all devices.
    of_file: ClassVar[tuple[str, ...]] = ("exporter", "capture", "ir_version", "options")

    opset: OpsetCondition | None = None
    """Which opsets: `13`, `"<14"`, `">=18"`, `"9..13"`, a list of these; without it: all."""
    device: Line = "*"
    """Which devices: a name, or a pattern such as `"cu*"`. Only `tolerance` and `outputs` can
    depend on it: one file of an opset serves all devices."""
    exporter: Literal["auto", "dynamo", "torchscript"] | None = None
    """The exporter of these opsets. Its own capture comes with it where `capture` says none."""
    capture: CaptureName | None = None
    """The capture of these opsets."""
    ir_version: Annotated[int, Field(ge=3, le=99)] | None = None
    """The highest IR version of these files."""
    options: OptionsTable = Field(default_factory=OptionsTable)
    """Options of these files, over those of the entry."""
    tolerance: ToleranceTable | None = None
    """The tolerance of these cells."""
    outputs: Items[OutputOverride] = ()
    """`[{ name = "logits", tolerance = { atol = 1e-3 } }]`: tolerances of single outputs."""
