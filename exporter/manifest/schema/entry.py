"""The tables of a manifest file: the single source of validation, JSON Schema and reference.

The docstring under a field is its text in the reference and in the schema. The default of a field
is the built-in default. `model_fields_set` contains the keys that the user wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from exporter.core.frozen_model import Items
from exporter.manifest.resolved.keys import Keys
from exporter.manifest.schema.tables import (
    AxisTable,
    CaseTable,
    ConstantTable,
    ContainerTable,
    DynamicAxes,
    InputTable,
    OutputTable,
    ParametersField,
    PassField,
    ToleranceTable,
    WeightsField,
)
from exporter.manifest.syntax import fields
from exporter.manifest.syntax.table import Table
from exporter.manifest.syntax.values import CaptureName, quote


class ConditionTable(Table):
    """A selection of cells of the model."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {"toolchain": 'use `device = "*@NAME"`'}

    opset: fields.OpsetCondition | None = None
    """The opsets: `13`, `"<14"`, `">=18"`, `"9..13"`, a list of these, `"*"`; without it: all."""
    device: fields.Line = "*"
    """The devices: a name, or a pattern such as `"cu*"`, in all toolchains. `"*@NAME"` selects a
    toolchain, and `"*@current"` the project's own packages."""


class ExpectTable(ConditionTable):
    """A foreseen failure. Strict: if the cell passes or fails otherwise, it is red.

    Its cause is not searched; `exporter export --thorough CELL` does.
    """

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **ConditionTable.misplaced_keys,
        "issue": "write it into `reason`",
        "until": "remove it: an expectation ends when its cell passes; `torch` limits its versions",
    }

    stage: Literal["source", "capture", "convert", "structure", "load", "parity"] | None = None
    """The stage that fails; without it: any stage."""
    check: fields.CheckNames | None = None
    """The checks that fail: `"parity"` or `["parity", "values"]`. Every check that does not pass
    must be named, in this or another expectation. Without it: a stage fails without a check."""
    match: fields.Line = Field(default="")
    """A part of the message of each of these checks, or of the stage, in any case."""
    reason: fields.Line
    """The reason why the failure is accepted, such as a link to the issue that tracks it."""
    torch: fields.VersionRange = Field(default="")
    """The versions of torch with which it fails: `"<2.14"`, `">=2.12, <2.14"`. With other versions,
    such as in `exporter rehearse`, the cell must pass. `==2.13` includes 2.13.1, and a nightly
    build counts as its release. Without it: all versions."""

    @property
    def checks(self) -> tuple[str, ...]:
        return self.check or ()


class SkipTable(ConditionTable):
    """Cells that are not run. The report shows the reason."""

    reason: fields.Line
    """The reason why they are not run."""


#: torch 1.10 was the last or second to last version with these arguments, and deprecated them.
_REMOVED = "torch removed it after 1.10"
_DYNAMO_EXPORT = (
    "torch removed torch.onnx.dynamo_export, which took it; use `exporter = 'dynamo'` instead"
)

REMOVED_OPTIONS: Mapping[str, str] = {
    "_retain_param_name": f"{_REMOVED}; weights keep their names unless `parameters` changes them",
    "aten": "torch removed it in 1.10; use `operator_export_type = 'ONNX_ATEN'`",
    "diagnostic_options": f"{_DYNAMO_EXPORT}, with `options.report`",
    "enable_onnx_checker": f"{_REMOVED}; every file is checked",
    "example_outputs": f"{_REMOVED}; `outputs` declares the outputs",
    "export_options": _DYNAMO_EXPORT,
    "export_raw_ir": "torch removed it in 1.10; use `operator_export_type = 'ONNX_FALLTHROUGH'`",
    "onnx_registry": f"{_DYNAMO_EXPORT}, with `custom_ops`",
    "op_level_debug": f"{_DYNAMO_EXPORT}; every file is compared with PyTorch",
    "strip_doc_string": f"{_REMOVED}; files have no doc strings, and `verbose` logs the source",
    "use_external_data_format": f"{_REMOVED}; weights above 1 MiB are external data by default",
}


#: Values of enumerations in older versions of torch.
_REMOVED_VALUES = {"RAW": "torch removed it; use 'ONNX_FALLTHROUGH'"}


def _check_enumeration(value: object) -> object:
    """Reject the value of an enumeration with its prefix, and values that torch removed."""
    if isinstance(value, str):
        prefix, _, name = value.rpartition(".")
        if advice := _REMOVED_VALUES.get(name):
            raise ValueError(f"{quote(value)}: {advice}")
        if prefix:
            raise ValueError(f"expected the name alone, got {quote(value)}; write {quote(name)}")
    return value


def _select_form(value: object) -> str | None:
    if isinstance(value, bool):
        return "<bool>"
    return "<list>" if isinstance(value, list | tuple) else None


FunctionModules = Annotated[
    Annotated[bool, Tag("<bool>")]
    | Annotated[Annotated[Items[fields.Line], Field(min_length=1)], Tag("<list>")],
    Discriminator(_select_form, "form", "expected true, false or a list of types of modules"),
]


class OptionsTable(Table):
    """Arguments of `torch.onnx.export`, under their own names."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "args": "use `inputs` and `constants`",
        "artifacts_dir": "the tool chooses the folder of the files",
        "custom_translation_table": "use `custom_ops` with `translation`",
        "dynamic_axes": "use the model's key `dynamic_axes`",
        "dynamic_shapes": "use axis names in `shape`, and `axes`",
        "dynamo": "use `exporter`",
        "f": "the tool chooses the folder of the files",
        "fallback": "use `exporter`; there is no silent fallback",
        "input_names": "use `inputs`",
        "kwargs": "use `inputs` and `constants` with `at`",
        "model": "use `source`",
        "opset_version": "use `opsets`",
        "output_names": "use `outputs`",
        "verify": "the checks verify every file",
        **REMOVED_OPTIONS,
    }

    export_params: bool = True
    """Both exporters: store the weights in the file. If `false`, they are its inputs, after the
    declared ones, in the order and with the names of `state_dict`; then the graph is neither folded
    nor optimized."""
    keep_initializers_as_inputs: bool = False
    """Both exporters: list the weights as inputs, too."""
    verbose: bool = False
    """Both exporters: print more into the cell's log."""
    external_data: bool = True
    """Both exporters: `true` stores the weights in a file next to the ONNX file, `false` stores
    them inside it, up to 2 GB. By default the size decides: from 1 MB, the weights are external
    data."""
    optimize: bool = True
    """dynamo: optimize the graph. Without it: optimize it, and write the file unoptimized with a
    note if the optimizer fails; `true` makes its failure an error of the cell."""
    report: bool = False
    """dynamo: write its own report, `logs/<opset>/report.md` in the model's build folder."""
    profile: bool = False
    """dynamo: profile the export, into the report or the log; needs the package pyinstrument."""
    dump_exported_program: bool = False
    """dynamo: store the captured program, `logs/<opset>/program.pt2`."""
    autograd_inlining: bool = True
    """TorchScript: inline `torch.autograd.Function`."""
    custom_opsets: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Both exporters: the operator domains that the file may have in addition to ONNX's own, with
    their versions. TorchScript writes these versions, dynamo uses those of the translation."""
    do_constant_folding: bool = True
    """TorchScript: compute constant values at export time."""
    export_modules_as_functions: FunctionModules = False
    """TorchScript, from opset 15: keep modules as functions in the file. A list names their types:
    `["torch.nn:LayerNorm", "net.py:Block"]`. `true` means all
    modules."""
    operator_export_type: Annotated[
        Literal["ONNX", "ONNX_ATEN", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH"],
        BeforeValidator(_check_enumeration),
    ] = "ONNX"
    """TorchScript: the treatment of operators that ONNX lacks."""
    training: Annotated[
        Literal["EVAL", "PRESERVE", "TRAINING"], BeforeValidator(_check_enumeration)
    ] = "EVAL"
    """TorchScript: the mode of the exported graph."""


_ONE_MODEL = "all cells share one model; write another entry that `extends` this one"


class OverrideTable(ConditionTable):
    """Settings of some cells. If two match a cell, the later one wins; `options` are merged.

    Only `tolerance` can depend on `device`, because all devices use the same file of an opset.
    """

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("custom_ops", "expect", "skip"), "its items have their own `opset`"),
        "devices": "use `device` to select devices, or `skip` to leave out cells",
        **dict.fromkeys(("extends", "was"), "write it in each entry"),
        "opsets": "use `opset` to select opsets, or `skip` to leave out cells",
        "outputs": "use `tolerance` of the output, which has tables for dtypes and devices",
    }

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


#: Arguments of `torch.onnx.export`, and other words.
_MISPLACED = {
    **{key: text for key, text in OptionsTable.misplaced_keys.items() if key != "dynamic_axes"},
    **{key: f"use `options.{key}`" for key in OptionsTable.model_fields},
    **fields.MODEL_KEYS,
    "latency": 'use `measure = ["latency"]`',
}
#: The form of an ID, which is part of folder names and cell names.
ID_PATTERN = "[a-z0-9][a-z0-9_.-]{0,99}"


class Settings(Keys):
    """The keys that `[models.ID]` and `[defaults]` share."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **_MISPLACED,
        **dict.fromkeys(("extends", "was"), "write it in each entry"),
    }
    #: Tables that are merged key by key with those of the layers below; other keys are replaced.
    merged: ClassVar[tuple[str, ...]] = ("init", "options", "axes")
    #: Keys that every resolved model needs.
    required: ClassVar[tuple[str, ...]] = ("source", "inputs", "outputs", "opsets")

    weights: WeightsField = Field(default="")
    """A file that is loaded with `load_state_dict(strict=True)`: `.safetensors`, or `.pt`, `.pth`,
    `.bin`, `.ckpt`, `.tar`, of which only tensors are read. A table selects the weights in a
    checkpoint: `{ file = "last.ckpt", key = "state_dict", strip = "module." }`."""
    devices: Annotated[Items[fields.Line], Field(min_length=1)] = ("cpu",)
    """The devices that check each file. `"cpu@NAME"` exports and checks it with the packages of
    `[tool.exporter.toolchains.NAME]`."""
    passes: Items[PassField] = ()
    """`["passes.py:slim", { call = "passes.py:quantize", per_channel = true }]`: functions that
    make the file that ships, in order. Each reads the file `source` and writes the file `target`;
    `samples` receives input sets for calibration. All checks are for the last file: see
    `recipes.md`."""
    inputs: Annotated[Items[InputTable], Field(min_length=1)] = ()
    """The inputs, in the order of the exported file."""
    outputs: Annotated[Items[OutputTable], Field(min_length=1)] = ()
    """The outputs, in order. If the model returns more or fewer, the cell fails."""
    axes: dict[str, AxisTable] = Field(default_factory=dict)
    """More about dynamic axes, by name. An entry keeps each key that its parent sets, unless it
    sets the key itself."""
    dynamic_axes: dict[str, DynamicAxes] = Field(default_factory=dict)
    """The notation of torch.onnx, if `shape` contains only sizes: `image = [0, 2]` (with generated
    names), `image = { 0 = "batch" }`, or a different one for each name."""
    parameters: ParametersField | None = None
    """The names of the weights in the file: `"learned_{}"` numbers the parameters in the order of
    `named_parameters`, a list names the first ones, and a table those that match its globs, with
    buffers: `{ "features.*.weight" = "kernel_{}" }`. Others keep their names."""
    constants: Items[ConstantTable] = ()
    """Fixed arguments of the call."""
    containers: Items[ContainerTable] = ()
    """The types of the call's tuples, lists, dicts and objects, if `at` is not enough."""
    inputs_from: fields.Line = Field(default="")
    """`"file.py:function"`: returns the call, `(args, kwargs)`, after `seed` is set. `inputs`
    declares its tensors in order, and a `fill` there replaces values. Its parameter is one dict
    of the sizes of the axes by name; without one, no other size is probed."""
    chain: Items[fields.Line] = ()
    """`["image_encoder", "mask_decoder"]`: other entries, whose files of the same opset run one
    after the other on their own outputs and are compared with the whole, which is `source`. Each is
    proved alone, too. See `recipes.md`."""
    feeds: dict[fields.Line, fields.Line] = Field(default_factory=dict)
    """With `chain`: `{ "mask_decoder.embedding" = "image_encoder.embedding" }`: the value that an
    input of a link gets: an output of an earlier link, or an input of this entry. Without it: the
    input of this entry with the same name. `masks = "mask_decoder.logits"` names the value of an
    output of this entry; without it: the output of the last link with that name. A feed with
    `{layer}` on both sides is one for each layer."""
    cases: Items[CaseTable] = ()
    """Additional input sets."""
    tolerance: ToleranceTable = Field(default_factory=ToleranceTable)
    """The allowed error of the outputs. By default the tolerance is measured: a multiple of
    PyTorch's own float32 error, compared with float64."""
    options: OptionsTable = Field(default_factory=OptionsTable)
    """Other arguments of `torch.onnx.export`."""
    expect: Items[ExpectTable] = ()
    """Foreseen failures."""
    skip: Items[SkipTable] = ()
    """Cells that are not run."""
    overrides: Items[OverrideTable] = ()
    """`[[models.ID.overrides]]`: other settings for some opsets or devices."""


OverrideTable.misplaced_keys = {
    **dict.fromkeys(Settings.model_fields.keys() - OverrideTable.model_fields.keys(), _ONE_MODEL),
    **OverrideTable.misplaced_keys,
}


class ModelEntry(Settings):
    """One model: `[models.ID]`."""

    misplaced_keys: ClassVar[Mapping[str, str]] = _MISPLACED

    extends: fields.Line = Field(default="")
    """The ID of a parent entry."""
    was: fields.Names = ()
    """The former ID of a renamed entry, or a list of all former ones: the gate compares the entry
    with what the baseline accepted under that ID. Remove it after the merge."""


class Document(Table):
    """A manifest file."""

    format: Literal[1]
    """The version of the format; the first line of every manifest."""
    defaults: Settings = Field(default_factory=Settings)
    """Settings for all models of this file."""
    models: dict[str, ModelEntry] = Field(
        default_factory=dict,
        json_schema_extra={"propertyNames": {"pattern": f"^{ID_PATTERN}$"}},
    )
    """The models, by ID: `[a-z0-9][a-z0-9_.-]*`, unique across all files."""
