"""The tables of a manifest file: the single source of validation, JSON Schema and reference.

The docstring under a field is its text in the reference and in the schema. The default of a field
is the built-in default. `model_fields_set` contains the keys that the user wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from exporter.core.frozen_model import Items
from exporter.manifest.resolved.measure import Measure
from exporter.manifest.resolved.model import CaptureName, ExportState, Mode, Precision
from exporter.manifest.schema.expectation_tables import ExpectTable, SkipTable
from exporter.manifest.schema.fields import (
    ExportDevice,
    Line,
    Memory,
    Opsets,
    PlainField,
    Sha256,
    Timeout,
)
from exporter.manifest.schema.misplaced_keys import MODEL_KEYS
from exporter.manifest.schema.options import OptionsTable
from exporter.manifest.schema.overrides import OverrideTable
from exporter.manifest.schema.tables import (
    AxisTable,
    CaseTable,
    ConstantTable,
    ContainerTable,
    CustomOpTable,
    DependsTable,
    DynamicAxes,
    InputTable,
    OutputTable,
    ParametersField,
    Table,
    ToleranceTable,
)
from exporter.manifest.syntax.consumers import check_consumer

#: Arguments of `torch.onnx.export`, and other words.
_MISPLACED = {
    **{key: text for key, text in OptionsTable.misplaced_keys.items() if key != "dynamic_axes"},
    **{key: f"use `options.{key}`" for key in OptionsTable.model_fields},
    **MODEL_KEYS,
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

    description: Line = Field(default="")
    """One line for reports."""
    owner: Line = Field(default="")
    """The person or team to contact if the model breaks."""
    tags: Items[Line] = ()
    """Labels for `--tag`."""
    source: Line = Field(default="")
    """`"file.py:attribute"`, relative to the manifest, or `"package.module:attribute"`: a class, a
    function that returns a module, or a module object. A module that TorchScript compiled and a
    `torch.export.ExportedProgram` count as modules. Or a file, relative to the manifest, without
    attribute: `"net.pt2"` contains an `ExportedProgram` (`torch.export.save`) for dynamo,
    `"net.pt"` a TorchScript module (`torch.jit.save`) for TorchScript."""
    init: dict[str, PlainField] = Field(default_factory=dict)
    """Keyword arguments for the call of the source."""
    artifact: Line = Field(default="")
    """An ONNX file `"files/net.onnx"`, relative to the manifest, that is checked in place of an
    export: from a hub, another converter or another branch. PyTorch's outputs still come from
    `source`, and all promises are checked as usual. If there are several opsets, the path needs
    `{opset}`: `"files/net-{opset}.onnx"`. Keys that control an export, such as `exporter`, do not
    apply."""
    weights: Line = Field(default="")
    """A file, relative to the manifest, that is loaded into the model with
    `load_state_dict(strict=True)`: `.safetensors`, or `.pt`, `.pth`, `.bin`. From the latter, only
    tensors are read (`weights_only=True`)."""
    weights_sha256: Sha256 = Field(default="")
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
    export_device: ExportDevice = "cpu"
    """The device on which PyTorch runs and exports the model, and computes its own outputs.
    `devices` sets the devices that check the file. If a machine lacks it, the cells are
    `unavailable`."""
    export_state: ExportState | None = None
    """The state of PyTorch for the export and for its own outputs. `"inference"`: gradients are off
    and the fused path of `nn.MultiheadAttention` and `nn.TransformerEncoder` is off. `"plain"`: as
    in a plain call of `torch.onnx.export`, gradients are on and the fused path is not changed.
    Without it: `"inference"`, and the export is tried again in `"plain"` if it fails. The record
    contains the state that worked and the errors of the others."""
    exporter: Literal["auto", "dynamo", "torchscript"] = "auto"
    """`auto` is dynamo from opset 18 and TorchScript below; the record contains the choice and the
    reason. `dynamo` below 18 converts the file down from 18, if that is possible."""
    capture: CaptureName | None = None
    """`export`, `strict` or `draft` for dynamo, `trace` or `script` for TorchScript; only this
    capture is used. `draft` replaces conditions that torch.export cannot prove by those of the
    example, and notes each of them: the checks show if the file is right for other values. Without
    it: `export` for dynamo, and `strict` if the export fails; `trace` for TorchScript."""
    opsets: Opsets = Field(default_factory=tuple)
    """`17`, `"9..21"`, `[13, "17..20"]`: one file for each opset, with exactly that opset."""
    devices: Annotated[Items[Line], Field(min_length=1)] = ("cpu",)
    """The devices that check each file. `"cpu@NAME"` exports and checks it with the packages of
    `[tool.exporter.toolchains.NAME]`."""
    ir_version: Annotated[int, Field(ge=3, le=99)] | None = None
    """The highest IR version of the file, for runtimes older than the exporter: ONNX Runtime before
    1.18 rejects IR version 10 at every opset, and `ir_version = 8` suits 1.9 and later. If a file
    uses a feature that its IR version lacks, it is red."""
    consumers: Items[Annotated[Line, AfterValidator(check_consumer)]] = ()
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
    inputs_from: Line = Field(default="")
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
    timeout: Timeout = 600.0
    """The time limit of the model's job: `"10m"`, `"90s"`, `"1h"`, or seconds. It is CPU time of
    the worker and its child processes, so the load of the machine does not matter. A job that uses
    no CPU time and makes no progress for the same time ends, too."""
    memory: Memory | None = None
    """The limit of the job's address space in addition to PyTorch itself: `"8GiB"`, `"500MB"`.
    Cells that need more are `killed`. Without it there is no limit. It works only on Linux, and not
    if `export_device` is a GPU, because its driver reserves more address space than the machine has
    memory."""


class ModelEntry(Settings):
    """One model: `[models.ID]`."""

    misplaced_keys: ClassVar[Mapping[str, str]] = _MISPLACED

    extends: Line = Field(default="")
    """The ID of a parent entry."""
    unset: Items[Line] = ()
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
