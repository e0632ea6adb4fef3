"""The tables of `[[models.ID.overrides]]`: other settings for some cells of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from exporter.core.frozen_model import Items
from exporter.manifest.resolved.model import CaptureName
from exporter.manifest.schema.fields import Line, Name, OpsetCondition
from exporter.manifest.schema.options import OptionsTable
from exporter.manifest.schema.tables import Table, ToleranceTable

_ONE_MODEL = "all cells share one model; write another entry that `extends` this one"
_ONE_JOB = "one job creates all files of a model"
_HAS_OPSET = "its items have their own `opset`"


class OutputOverride(Table):
    """The tolerance of one output."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("shape", "dtype", "kind"), _ONE_MODEL
    )

    name: Name
    """The name in the file."""
    tolerance: ToleranceTable
    """Replaces the tolerance of the output."""


class OverrideTable(Table):
    """Settings of some cells. If two match a cell, the later one wins; `options` are merged."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "artifact", "axes", "cases", "constants", "consumers", "containers", "description",
                "dynamic_axes", "export_device", "export_state", "init", "inputs", "inputs_from",
                "mode", "owner", "parameters", "precision", "seed", "source", "tags", "weights",
                "weights_sha256",
            ),
            _ONE_MODEL,
        ),
        **dict.fromkeys(("depends", "measure", "memory", "thorough", "timeout"), _ONE_JOB),
        **dict.fromkeys(("custom_ops", "expect", "skip"), _HAS_OPSET),
        "devices": "use `device` to select devices, or `skip` to leave out cells",
        **dict.fromkeys(("extends", "unset"), "write it in each entry"),
        "opsets": "use `opset` to select opsets, or `skip` to leave out cells",
    }  # fmt: skip
    #: Keys of the file: all devices use the same file of an opset.
    file_keys: ClassVar[tuple[str, ...]] = ("exporter", "capture", "ir_version", "options")

    opset: OpsetCondition | None = None
    """The opsets: `13`, `"<14"`, `">=18"`, `"9..13"`, a list of these; without it: all."""
    device: Line = "*"
    """The devices: a name, or a pattern such as `"cu*"`, in all toolchains. Only `tolerance` and
    `outputs` can depend on it, because all devices use the same file of an opset."""
    exporter: Literal["auto", "dynamo", "torchscript"] | None = None
    """The exporter of these opsets. If `capture` is not set, it uses its default capture."""
    capture: CaptureName | None = None
    """The capture of these opsets."""
    ir_version: Annotated[int, Field(ge=3, le=99)] | None = None
    """The highest IR version of these files."""
    options: OptionsTable = Field(default_factory=OptionsTable)
    """Options of these files, merged over those of the entry."""
    tolerance: ToleranceTable | None = None
    """The tolerance of these cells."""
    outputs: Items[OutputOverride] = ()
    """`[{ name = "logits", tolerance = { atol = 1e-3 } }]`: tolerances of single outputs."""
