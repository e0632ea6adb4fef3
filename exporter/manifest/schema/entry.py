"""What users write in a manifest file: the one source of validation, JSON Schema and reference.

In: the tables that tomli read. Out: frozen, typed tables, before defaults, parents and the rules
that need more than one key. `resolve.py` makes a `ModelSpec` of them.

A docstring under a field is its text in the reference and in the schema. A field's default is the
built-in default; what was said and what was not is in `model_fields_set`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from exporter.core.frozen_model import Items
from exporter.manifest.schema.containers import ContainerTable
from exporter.manifest.schema.fields import (
    ExportDevice,
    Line,
    Memory,
    Opsets,
    PlainField,
    Sha256,
    Timeout,
)
from exporter.manifest.schema.overrides import OverrideTable
from exporter.manifest.schema.parameters import ParametersField
from exporter.manifest.schema.tables import (
    AxisTable,
    CaseTable,
    ConstantTable,
    CustomOpTable,
    DynamicAxes,
    ExpectTable,
    InputTable,
    OptionsTable,
    OutputTable,
    SkipTable,
    Table,
    ToleranceTable,
)
from exporter.manifest.spec.model import CaptureName, Mode, Precision

#: What an ID looks like: it names folders, and stands in every cell.
ID_PATTERN = "[a-z0-9][a-z0-9_.-]{0,99}"


class Settings(Table):
    """The keys that `[models.ID]` and `[defaults]` share."""

    unsupported_keys = frozenset(
        {
        }
    )  # fmt: skip
    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "extends": "each entry says for itself what it extends"
    }
    #: Tables that are merged key by key with those of the layers below; all else is replaced.
    merged: ClassVar[tuple[str, ...]] = ("init", "options", "axes")
    #: What every model needs to have in the end.
    required: ClassVar[tuple[str, ...]] = ("source", "inputs", "outputs", "opsets")

    description: Line = Field(default="")
    """One line for reports."""
    owner: Line = Field(default="")
    """Who is asked when it breaks."""
    tags: Items[Line] = ()
    """Words that `--tag` selects by."""
    source: Line = Field(default="")
    """`"file.py:attribute"`, relative to the manifest, or `"package.module:attribute"`: a class, a
    function that returns a module, or a module object; one that TorchScript compiled and a
    `torch.export.ExportedProgram` count as modules. Or a file, relative to the manifest, without
    attribute: `"net.pt2"` holds an `ExportedProgram` (`torch.export.save`) for dynamo, `"net.pt"` a
    TorchScript module (`torch.jit.save`) for TorchScript."""
    init: dict[str, PlainField] = Field(default_factory=dict)
    """Keyword arguments for that call."""
    weights: Line = Field(default="")
    """A file, relative to the manifest, that is loaded into the model with
    `load_state_dict(strict=True)`: `.safetensors`, or `.pt`, `.pth`, `.bin`, of which nothing but
    tensors is read (`weights_only=True`)."""
    weights_sha256: Sha256 = Field(default="")
    """The hash that the file must have; another one is an error before anything of the model
    runs."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Set before the model is built, and again before inputs are drawn."""
    mode: Mode = "eval"
    """`eval` and `train` switch the model; `keep` leaves it as it was built."""
    precision: Precision | None = None
    """Casts the floating weights of the model, and is the dtype of every input and output that
    names none: a variant in half precision is `extends` and this one line. Without it, nothing is
    cast."""
    export_device: ExportDevice = "cpu"
    """Where the model is while it runs in PyTorch and is exported; `devices` says where the file
    is checked. PyTorch's own outputs are computed there too. A machine without it has the cells
    `unavailable`."""
    exporter: Literal["auto", "dynamo", "torchscript"] = "auto"
    """`auto` is dynamo from opset 18 up and TorchScript below; the record says which and why.
    `dynamo` below 18 is converted down from 18, where that can be done."""
    capture: CaptureName | None = None
    """`export` (default) or `strict` for dynamo, `trace` (default) or `script` for TorchScript."""
    opsets: Opsets = Field(default_factory=tuple)
    """`17`, `"9..21"`, `[13, "17..20"]`: one file for each, which must really have that opset."""
    devices: Annotated[Items[Line], Field(min_length=1)] = ("cpu",)
    """Where each file is checked."""
    ir_version: Annotated[int, Field(ge=3, le=99)] | None = None
    """The highest IR version that the file may have, for runtimes older than the exporter: ONNX
    Runtime before 1.18 refuses IR version 10, whatever the opset, and `ir_version = 8` will do
    for 1.9 and later. A file that holds what its version does not have is red."""
    inputs: Annotated[Items[InputTable], Field(min_length=1)] = ()
    """The inputs, in the order of the exported file."""
    outputs: Annotated[Items[OutputTable], Field(min_length=1)] = ()
    """The outputs, in order; one more or one less than the model returns is a failure."""
    axes: dict[str, AxisTable] = Field(default_factory=dict)
    """More about dynamic axes, by name."""
    dynamic_axes: dict[str, DynamicAxes] = Field(default_factory=dict)
    """As torch.onnx takes it, where `shape` holds only sizes: `image = [0, 2]` (names are
    generated), `image = { 0 = "batch" }`, or one for some and the other for others."""
    parameters: ParametersField | None = None
    """What the file calls the weights: `"learned_{}"` numbers the parameters from 0 in the order of
    `named_parameters`, a list names each of them, and a table names those that its globs mean,
    buffers too: `{ "features.*.weight" = "kernel_{}" }`. Without it: their names in the model."""
    constants: Items[ConstantTable] = ()
    """Fixed arguments of the call."""
    containers: Items[ContainerTable] = ()
    """What the call's tuples, lists, dicts and objects are, where `at` alone does not tell."""
    inputs_from: Line = Field(default="")
    """`"file.py:function"`, relative to the manifest: returns the whole call, `(args, kwargs)`, for
    what no table can say. `inputs` then names and types its tensors, in the order in which they
    stand there. Called with the sizes of the axes, by name, where it has a parameter; without one,
    no axis can be tried at another size. PyTorch's generator is seeded with `seed` before."""
    cases: Items[CaseTable] = ()
    """More input sets."""
    tolerance: ToleranceTable = Field(default_factory=ToleranceTable)
    """How far outputs may be off. Without a word it is measured: a multiple of PyTorch's own
    float32 error against float64."""
    options: OptionsTable = Field(default_factory=OptionsTable)
    """Other arguments of `torch.onnx.export`."""
    custom_ops: Items[CustomOpTable] = ()
    """Operators that the exporter does not know by itself, and the kernels that run them."""
    expect: Items[ExpectTable] = ()
    """Foreseen failures."""
    skip: Items[SkipTable] = ()
    """Cells that are not run."""
    overrides: Items[OverrideTable] = ()
    """`[[models.ID.overrides]]`: other settings for some opsets or devices."""
    thorough: bool = False
    """Try more sizes and values, at several times the cost: see `checks.md`."""
    latency: bool = False
    """Measure the file's time beside PyTorch's, on the declared inputs, in turns, with one thread
    each. Kept is the ratio of their medians alone, for `latency_grown` of the gate: seconds of two
    machines say nothing of a file."""
    timeout: Timeout = 600.0
    """What the model's job may take: `"10m"`, `"90s"`, `"1h"`, or seconds."""
    memory: Memory | None = None
    """What the model's job may take beyond PyTorch itself, in address space: `"8GiB"`, `"500MB"`.
    Cells that need more are `killed`. Without it there is no limit. Linux alone, and not where
    `export_device` is a GPU, whose driver reserves more than there is."""


class ModelEntry(Settings):
    """One model: `[models.ID]`."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {}

    extends: Line = Field(default="")
    """The ID of another entry to start from."""


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
