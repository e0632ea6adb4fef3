"""The tables of a manifest file: the single source of validation, JSON Schema and reference.

The docstring under a field is its text in the reference and in the schema. The default of a field
is the built-in default. `model_fields_set` contains the keys that the user wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from exporter.core.frozen_model import Items
from exporter.manifest.resolved.model import CaptureName, ExportState, Measure, Mode, Precision
from exporter.manifest.schema.tables import (
    AxisTable,
    CaseTable,
    ComponentTable,
    ConstantTable,
    ContainerTable,
    CustomOpTable,
    DependsTable,
    DynamicAxes,
    InputTable,
    MetricTable,
    OutputTable,
    ParametersField,
    PassField,
    RolloutTable,
    Table,
    ToleranceTable,
    WeightsField,
)
from exporter.manifest.syntax import fields
from exporter.manifest.syntax.values import check_consumer, quote


class ExpectTable(Table):
    """A foreseen failure. Strict: if the cell passes or fails otherwise, it is red.

    Its cause is not searched; `exporter export --thorough CELL` does.
    """

    opset: fields.OpsetCondition | None = None
    """The opsets: `13`, `"<14"`, `">=18"`, `"9..13"`, a list of these, `"*"`; without it: all."""
    device: fields.Line = "*"
    """The devices: a name, or a pattern such as `"cu*"`, in all toolchains."""
    toolchain: fields.Line = "*"
    """The toolchains: a name or a pattern. `"current"` is the project's own packages."""
    stage: Literal["source", "capture", "convert", "structure", "load", "parity"] | None = None
    """The stage that fails; without it: any stage."""
    check: fields.CheckNames | None = None
    """The checks that fail: `"parity"` or `["parity", "values"]`. Every check that does not pass
    must be named, in this or another expectation. Without it: a stage fails without a check."""
    match: fields.Line = Field(default="")
    """A part of the message of each of these checks, or of the stage, in any case."""
    reason: fields.Line
    """The reason why the failure is accepted."""
    issue: fields.Line = Field(default="")
    """The issue that tracks it."""
    until: fields.Day = Field(default="")
    """The last day on which it is accepted; without it there is no end."""
    torch: fields.VersionRange = Field(default="")
    """The versions of torch with which it fails: `"<2.14"`, `">=2.12, <2.14"`. With other versions,
    such as in `exporter rehearse`, the cell must pass. `==2.13` includes 2.13.1, and a nightly
    build counts as its release. Without it: all versions."""

    @property
    def checks(self) -> tuple[str, ...]:
        return self.check or ()


class SkipTable(Table):
    """Cells that are not run. The report shows the reason."""

    opset: fields.OpsetCondition | None = None
    """The opsets, as for `expect`."""
    device: fields.Line = "*"
    """The devices, as for `expect`."""
    toolchain: fields.Line = "*"
    """The toolchains, as for `expect`."""
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
    """Both exporters: store the weights in the file. If it is `false`, the weights are inputs of
    the file, after the declared ones, in the order and with the names of `state_dict`. The graph is
    then neither folded nor optimized, because both would compute new weights."""
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
    `["torch.nn:LayerNorm", "net.py:Block"]`, in files relative to the manifest. `true` means all
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
_ONE_JOB = "one job creates all files of a model"
_HAS_OPSET = "its items have their own `opset`"


class OutputOverride(Table):
    """The tolerance of one output."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("shape", "dtype", "kind"), _ONE_MODEL
    )

    name: fields.Name
    """The name in the file."""
    tolerance: ToleranceTable
    """Replaces the tolerance of the output."""


class OverrideTable(Table):
    """Settings of some cells. If two match a cell, the later one wins; `options` are merged."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "artifact", "axes", "cases", "component", "constants", "consumers", "containers",
                "description", "dynamic_axes", "export_device", "export_state", "homepage", "init",
                "inputs", "inputs_from", "license", "metric", "mode", "owner", "parameters",
                "passes", "precision", "rollout", "seed", "source", "tags", "version", "weights",
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

    opset: fields.OpsetCondition | None = None
    """The opsets: `13`, `"<14"`, `">=18"`, `"9..13"`, a list of these; without it: all."""
    device: fields.Line = "*"
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


#: Arguments of `torch.onnx.export`, and other words.
_MISPLACED = {
    **{key: text for key, text in OptionsTable.misplaced_keys.items() if key != "dynamic_axes"},
    **{key: f"use `options.{key}`" for key in OptionsTable.model_fields},
    **fields.MODEL_KEYS,
    "latency": 'use `measure = ["latency"]`',
}
#: The form of an ID, which is part of folder names and cell names.
ID_PATTERN = "[a-z0-9][a-z0-9_.-]{0,99}"


class Settings(Table):
    """The keys that `[models.ID]` and `[defaults]` share."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **_MISPLACED,
        **dict.fromkeys(("extends", "unset"), "write it in each entry"),
    }
    #: Tables that are merged key by key with those of the layers below; other keys are replaced.
    merged: ClassVar[tuple[str, ...]] = ("init", "options", "axes")
    #: Keys that every resolved model needs.
    required: ClassVar[tuple[str, ...]] = ("source", "inputs", "outputs", "opsets")

    description: fields.Line = Field(default="")
    """One line for reports."""
    owner: fields.Line = Field(default="")
    """The person or team to contact if the model breaks."""
    license: fields.Line = Field(default="")
    """The license of a published file: its SPDX identifier, such as `"Apache-2.0"`."""
    version: fields.ModelVersion = Field(default="")
    """The version of a published file: `"3"`, or `"1.2.0"` for semantic versions."""
    homepage: fields.Url = Field(default="")
    """A page about preprocessing, labels and intended use, which the card of a published file
    links."""
    tags: Items[fields.Line] = ()
    """Labels for `--tag`."""
    source: fields.Line = Field(default="")
    """`"file.py:attribute"`, relative to the manifest, or `"package.module:attribute"`: a class, a
    function that returns a module, or a module object. A module that TorchScript compiled and a
    `torch.export.ExportedProgram` count as modules. Or a file, relative to the manifest, without
    attribute: `"net.pt2"` contains an `ExportedProgram` (`torch.export.save`) for dynamo,
    `"net.pt"` a TorchScript module (`torch.jit.save`) for TorchScript."""
    init: dict[str, fields.PlainField] = Field(default_factory=dict)
    """Keyword arguments for the call of the source."""
    artifact: fields.Line = Field(default="")
    """An ONNX file `"files/net.onnx"`, relative to the manifest, that is checked in place of an
    export: from a hub, another converter or another branch. PyTorch's outputs still come from
    `source`, and all promises are checked as usual. If there are several opsets, the path needs
    `{opset}`: `"files/net-{opset}.onnx"`. Keys that control an export, such as `exporter`, do not
    apply."""
    weights: WeightsField = Field(default="")
    """A file, relative to the manifest, that is loaded into the model with
    `load_state_dict(strict=True)`: `.safetensors`, or `.pt`, `.pth`, `.bin`, `.ckpt`, `.tar`. From
    the latter, only tensors are read (`weights_only=True`). A table selects the weights in a
    checkpoint: `{ file = "last.ckpt", key = "state_dict", strip = "module." }`."""
    weights_sha256: fields.Sha256 = Field(default="")
    """The required hash of that file, or of `source` if it is a saved model (`.pt2`, `.pt`). If the
    file has another hash, the model fails before any of its code runs."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The seed of torch, Python and numpy, set before the model is built and inputs are drawn."""
    mode: Mode = "eval"
    """`eval` and `train` switch the model; `keep` does not change it."""
    precision: Precision | None = None
    """Casts the floating weights of the model. It is also the dtype of every input and output
    without a dtype, so a variant in half precision needs only `extends` and this line. Without it,
    nothing is cast."""
    export_device: fields.ExportDevice = "cpu"
    """The device on which PyTorch runs and exports the model, and computes its own outputs.
    `devices` sets the devices that check the file. If a machine lacks it, the cells are
    `unavailable`."""
    export_state: ExportState | None = None
    """The state of PyTorch for the export and for its own outputs. `"inference"`: gradients are off
    and the fused path of `nn.MultiheadAttention` and `nn.TransformerEncoder` is off. `"plain"`: as
    in a plain call of `torch.onnx.export`, gradients are on and the fused path is not changed.
    Without it: `"inference"`, and the export is tried again in `"plain"` if it fails. The record
    contains the state that worked and the errors of the others."""
    exporter: Literal["auto", "dynamo", "torchscript", "transformers"] = "auto"
    """`auto` is dynamo from opset 18 and TorchScript below; the record contains the choice and the
    reason. `dynamo` below 18 converts the file down from 18, if that is possible. `transformers` is
    the exporter of that package, for a `component`."""
    capture: CaptureName | None = None
    """`export`, `strict` or `draft` for dynamo, `trace` or `script` for TorchScript; only this
    capture is used. `draft` replaces conditions that torch.export cannot prove by those of the
    example, and notes each of them: the checks show if the file is right for other values. Without
    it: `export` for dynamo, and `strict` if the export fails; `trace` for TorchScript."""
    opsets: fields.Opsets = Field(default_factory=tuple)
    """`17`, `"9..21"`, `[13, "17..20"]`: one file for each opset, with exactly that opset."""
    devices: Annotated[Items[fields.Line], Field(min_length=1)] = ("cpu",)
    """The devices that check each file. `"cpu@NAME"` exports and checks it with the packages of
    `[tool.exporter.toolchains.NAME]`."""
    passes: Items[PassField] = ()
    """`["passes.py:slim", { call = "passes.py:quantize", per_channel = true }]`: functions of the
    project that make the file that ships, in order. Each one reads the file `source` and writes the
    file `target`; a parameter `samples` receives input sets for calibration. All checks are for the
    last file: see `passes.md`."""
    metric: MetricTable | None = None
    """`{ call = "eval.py:top1", least = 0.80, drop = 0.005 }`: a figure that is computed for
    PyTorch and for the file. The cell is red if the file breaks one of the promises."""
    component: ComponentTable | None = None
    """With `exporter = "transformers"`: `{ name = "decode", prompt = "prompts.py:text" }`. The
    entry is this component of the model. Its inputs and outputs have the names of transformers; see
    `generation.md`."""
    rollout: RolloutTable | None = None
    """`{ steps = 32, feeds = { "present.{layer}" = "past.{layer}", logits = "input_ids" } }`: run
    PyTorch and the file in a loop, and compare the outputs and the greedy tokens of each step."""
    ir_version: Annotated[int, Field(ge=3, le=99)] | None = None
    """The highest IR version of the file, for runtimes older than the exporter: ONNX Runtime before
    1.18 rejects IR version 10 at every opset, and `ir_version = 8` suits 1.9 and later. If a file
    uses a feature that its IR version lacks, it is red."""
    consumers: Items[Annotated[fields.Line, AfterValidator(check_consumer)]] = ()
    """`["onnxruntime>=1.17"]`: the file loads in this release of ONNX Runtime and in later ones. It
    is red if its opset or IR version needs a later release; the message contains the setting that
    keeps the promise. If `[tool.exporter.environments]` pins this release (`onnxruntime==1.17.3`),
    the devices with that environment run the file, too."""
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
    """The names of the weights in the file: `"learned_{}"` numbers the parameters from 0 in the
    order of `named_parameters`, a list names the first of them in this order, and a table names
    those that match its globs, including buffers: `{ "features.*.weight" = "kernel_{}" }`. Weights
    without a name keep the name that they have in the model."""
    constants: Items[ConstantTable] = ()
    """Fixed arguments of the call."""
    containers: Items[ContainerTable] = ()
    """The types of the call's tuples, lists, dicts and objects, if `at` is not enough."""
    inputs_from: fields.Line = Field(default="")
    """`"file.py:function"`, relative to the manifest: returns the complete call, `(args, kwargs)`,
    if tables cannot express it. `inputs` then contains the names and types of its tensors, in their
    order; an input with a `fill` gets its values from the fill. If the function has a parameter,
    it receives the sizes of the axes, by name; if it has none, no axis can be probed at another
    size. The generators are seeded with `seed` before."""
    cases: Items[CaseTable] = ()
    """Additional input sets."""
    depends: DependsTable = Field(default_factory=DependsTable)
    """Files and environment variables that the model depends on, if the export cannot see it."""
    tolerance: ToleranceTable = Field(default_factory=ToleranceTable)
    """The allowed error of the outputs. By default the tolerance is measured: a multiple of
    PyTorch's own float32 error, compared with float64."""
    options: OptionsTable = Field(default_factory=OptionsTable)
    """Other arguments of `torch.onnx.export`."""
    custom_ops: Items[CustomOpTable] = ()
    """Operators that the exporter does not support, and the kernels that run them."""
    expect: Items[ExpectTable] = ()
    """Foreseen failures."""
    skip: Items[SkipTable] = ()
    """Cells that are not run."""
    overrides: Items[OverrideTable] = ()
    """`[[models.ID.overrides]]`: other settings for some opsets or devices."""
    thorough: bool = False
    """Probe more sizes and values, at several times the cost: see `checks.md`."""
    measure: Items[Measure] = ()
    """Figures of files that pass: `"latency"` (median and 95th percentile of a run on the declared
    inputs, in turns with PyTorch, with one thread each), `"load"` (the time until a session exists)
    and `"memory"` (the growth of memory by the session and its first run). Seconds and bytes depend
    on the machine, so the gate compares only ratios: see `gate.md`."""
    timeout: fields.Timeout = 600.0
    """The time limit of the model's job: `"10m"`, `"90s"`, `"1h"`, or seconds. It is CPU time of
    the worker and its child processes, so the load of the machine does not matter. A job that uses
    no CPU time and makes no progress for the same time ends, too."""
    memory: fields.Memory | None = None
    """The limit of the job's address space in addition to PyTorch itself: `"8GiB"`, `"500MB"`.
    Cells that need more are `killed`. Without it there is no limit. It works only on Linux, and not
    if `export_device` is a GPU, because its driver reserves more address space than the machine has
    memory."""


class ModelEntry(Settings):
    """One model: `[models.ID]`."""

    misplaced_keys: ClassVar[Mapping[str, str]] = _MISPLACED

    extends: fields.Line = Field(default="")
    """The ID of a parent entry."""
    unset: Items[fields.Line] = ()
    """Keys of the parent and of `[defaults]` that the entry does not inherit: `"tolerance"`, or an
    item of a merged table such as `"init.width"` or `"axes.batch.max"`."""


class Document(Table):
    """A manifest file."""

    missing_messages: ClassVar[Mapping[str, str]] = {
        "format": "needs `format = 1` as its first line"
    }
    default_values: ClassVar[Mapping[str, Any]] = {"format": 1}

    format: Literal[1]
    """The version of the format; the first line of every manifest."""
    defaults: Settings = Field(default_factory=Settings)
    """Settings for all models of this file."""
    models: dict[str, ModelEntry] = Field(
        default_factory=dict,
        json_schema_extra={"propertyNames": {"pattern": f"^{ID_PATTERN}$"}},
    )
    """The models, by ID: `[a-z0-9][a-z0-9_.-]*`, unique across all files."""
