"""The tables inside an entry: inputs, outputs, axes, cases, tolerances, options, expectations.

In: what tomli read. Out: frozen, typed tables. The conventions are those of `entry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, Tag, model_validator

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest.schema.fields import (
    Amount,
    At,
    AxisName,
    AxisSize,
    CaseValue,
    DataFile,
    Day,
    DimField,
    Dtype,
    Example,
    Factor,
    Index,
    IndexKey,
    IntPair,
    Line,
    Name,
    OpsetCondition,
    Pair,
    PlainField,
    Repeat,
    Size,
    TensorField,
    discriminate_form,
)
from exporter.manifest.schema.removed_options import REMOVED_OPTIONS
from exporter.manifest.spec.model import Kind
from exporter.manifest.syntax.message_format import join_words


class Table(FrozenModel):
    """A table of the manifest."""

    #: Keys that the format knows and this version does not.
    unsupported_keys: ClassVar[frozenset[str]] = frozenset()
    #: Keys that belong elsewhere, with what to say about them.
    misplaced_keys: ClassVar[Mapping[str, str]] = {}
    #: What to say where a key is missing, if more than that.
    missing_messages: ClassVar[Mapping[str, str]] = {}
    #: Values for required keys that are missing or wrong, so that the rest can be read.
    default_values: ClassVar[Mapping[str, Any]] = {}


class FillTable(Table):
    """How an input gets its values: exactly one key."""

    uniform: Pair | None = None
    """Evenly spread between two numbers; floating dtypes."""
    randint: IntPair | None = None
    """Integers from the first number up to the second, which is excluded."""
    bernoulli: Annotated[float, Field(ge=0, le=1)] | None = None
    """Ones (or `true`) with this probability, else zeros."""
    value: TensorField | None = None
    """One number for all elements, or nested lists of the input's shape."""
    file: DataFile | None = None
    """`"x.npy"`, `"x.pb"`, `"x.npz:key"` or `"x.safetensors:key"`, relative to the manifest. At
    other sizes of an axis its values are cut, or repeated from the first."""
    python: Line | None = None
    """`"file.py:function"`, relative to the manifest; called with shape, dtype and generator."""

    @model_validator(mode="after")
    def _exactly_one(self) -> FillTable:
        if len(self.model_fields_set) != 1:
            names = join_words(FillTable.model_fields)
            raise ValueError(f"needs exactly one of {names}")
        return self


FillName = Literal["normal", "zeros", "ones", "arange"]
FillField = Annotated[
    Annotated[FillName, Tag("<text>")] | Annotated[FillTable, Tag("<table>")],
    discriminate_form("expected the name of a fill or a table"),
]


class InputTable(Table):
    """One input of the graph; inputs stand in the order of the exported file."""

    name: Name
    """Its name in the file."""
    shape: Items[DimField]
    """A size where the dimension is fixed, a name where it is a dynamic axis; `[]` is a scalar."""
    dtype: Dtype | None = None
    """A dtype of PyTorch by its name. Without it: the model's `precision`, else float32; a dtype
    that is named stays, whatever the `precision`. ONNX's operators take no complex numbers: where
    `complex64` and `["n", 4]` are declared, the file has float32 and `["n", 4, 2]`, real and
    imaginary parts in the last dimension, and so have the samples. Dynamo alone exports them."""
    at: At | None = None
    """Where the value goes in the call: `"args[0]"`, `"kwargs.mask"`, `"args[1][0]"`,
    `"kwargs.past[0].key"`. Without it: the next position of `args`. Positions make a tuple and keys
    a dict, where `containers` does not say otherwise."""
    fill: FillField = "normal"
    """`"normal"`, `"zeros"`, `"ones"`, `"arange"`, or a table of one key. Random values are drawn
    with the model's `seed`."""
    scalar: bool = False
    """The model takes a Python number, not a tensor; in the file it is a tensor of shape `[]`."""
    optional: bool = False
    """A case may leave it out with `values.NAME = "none"`: the model gets `None`, and the file
    nothing. Only `capture = "script"` makes such inputs, from opset 15 up; elsewhere the file has
    an input always or never."""
    repeat: Repeat = Field(default_factory=dict)
    """`{ layer = 12 }` stands for 12 inputs, with the numbers 0 to 11 for `{layer}` in `name`,
    `at`, `shape` and `fill.file`. Tables next to each other that repeat alike take turns: all of
    layer 0, then all of layer 1."""


class BoundTable(Table):
    """How far a floating output may be off."""

    atol: Amount | None = None
    """Absolute tolerance; 0 where only `rtol` is given."""
    rtol: Amount | None = None
    """Relative tolerance; 0 where only `atol` is given."""
    outside: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of elements that may lie beyond `atol + rtol * |expected|`."""
    noise: Factor | None = None
    """The allowed error as a multiple of PyTorch's own float32 error, instead of `atol`, `rtol`."""

    @model_validator(mode="after")
    def _one_way(self) -> BoundTable:
        if self.noise is not None and (self.atol is not None or self.rtol is not None):
            raise ValueError("takes either `noise` or `atol` and `rtol`, not both")
        return self


class ToleranceTable(BoundTable):
    """A bound, and tables with other bounds for a dtype or for a device, by its name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, BoundTable] = Field(init=False)


class OutputTable(Table):
    """One output of the graph, in order."""

    name: Name
    """Its name in the file."""
    shape: Items[DimField]
    """Sizes and axis names, as for inputs. An axis that only an output has is allowed."""
    dtype: Dtype | None = None
    """Checked, not cast. Without it: the model's `precision`, else float32. Complex numbers are
    pairs in the file, as for inputs."""
    kind: Kind = "tensor"
    """`sequence` is a list of tensors: `shape` and `dtype` are those of each item, and along an
    axis that no tensor has, items may differ in size. Only TorchScript's compiler keeps lists, so
    that `capture = "script"` is needed, and opset 11; a trace and dynamo put out each item by
    itself."""
    tolerance: ToleranceTable | None = None
    """A tolerance for this output alone."""
    repeat: Repeat = Field(default_factory=dict)
    """As for inputs: `{layer}` in `name` and `shape`."""


class AxisTable(Table):
    """A dynamic axis and the sizes that it promises."""

    example: Example | None = None
    """The size it is exported at, at least 2. Without it: a prime that no other axis has."""
    min: Size = 1
    """The smallest size promised; 0 where it may be empty, as a cache at the start."""
    max: AxisSize | None = None
    """The largest size promised; without it there is no limit."""
    multiple_of: AxisSize = 1
    """Every size promised is a multiple of this."""
    probe: Items[AxisSize] = ()
    """Sizes to try besides those that are chosen."""


class ConstantTable(Table):
    """A fixed argument of the call that is no input of the graph."""

    at: At
    """Where it goes, as for inputs."""
    value: PlainField = None
    """Text, a number, true, false, or lists and tables of these."""
    none: bool = False
    """`none = true` in place of `value`: Python's `None`, for which TOML has no word."""
    repeat: Repeat = Field(default_factory=dict)
    """As for inputs: `{layer}` in `at`."""

    @model_validator(mode="after")
    def _one_value(self) -> ConstantTable:
        if ("value" in self.model_fields_set) is self.none:
            raise ValueError("needs `value`, or `none = true` for None")
        return self


class CaseTable(Table):
    """One more input set, run against PyTorch and on every device."""

    name: Name
    """Its name in reports."""
    values: dict[str, CaseValue] = Field(default_factory=dict)
    """Values for inputs, by name: as in `fill.value`, `{ file = "x.npy" }` as in `fill.file`, or
    `"none"` for an optional input that is left out."""
    axes: dict[str, Size] = Field(default_factory=dict)
    """Sizes for axes, by name."""
    inputs_from: Line = Field(default="")
    """All inputs of this case: `"file.py:function"`, as the model's own `inputs_from`."""


class CustomOpTable(Table):
    """What becomes of an operator that ONNX lacks, and what runs the result.

    At most one of `symbolic`, `onnxscript` and `translation`; the kernels may stand with it or in
    an entry of their own. What no runtime at hand has a kernel for is `unavailable`, never green.
    A function that the file brings along (`onnxscript`) needs no kernel, and none may hide it.
    The domains of all other operators have to be named by `options.custom_opsets` or by an entry of
    kernels.
    """

    name: Line
    """PyTorch's operator: `"namespace::operator"` under TorchScript,
    `"namespace.operator.overload"` under dynamo. In an entry of kernels alone: the operator of the
    file, `"domain::Operator"`."""
    symbolic: Line | None = None
    """TorchScript: `"file.py:function"`, called as `function(g, *arguments)`; it builds the nodes.
    As for `torch.onnx.register_custom_op_symbolic`."""
    onnxscript: Line | None = None
    """TorchScript: `"file.py:function"`, a function of onnxscript, which becomes a function in the
    file. Its inputs and attributes are the operator's arguments in order."""
    translation: Line | None = None
    """dynamo: `"file.py:function"`, called with the operator's arguments; it is written in
    onnxscript. As for `custom_translation_table` of `torch.onnx.export`."""
    opset: Annotated[int, Field(ge=1, le=99)] | None = None
    """The opset from which on this holds; without it: every opset. Of several entries for one
    operator, the highest that is not above the file's opset counts."""
    ort_library: Line | None = None
    """A library of kernels for ONNX Runtime: `"libfoo.so"`, relative to the manifest and inside
    the project, or `"package.module:function"` or `"file.py:function"`, which returns its path."""
    reference: Line | None = None
    """A kernel for onnx.reference: `"file.py:Class"`, an `onnx.reference.op_run.OpRun` that has
    the operator's name and an `op_domain`."""

    @model_validator(mode="after")
    def _one_way(self) -> CustomOpTable:
        ways = self.model_fields_set & {"symbolic", "onnxscript", "translation"}
        if len(ways) > 1:
            raise ValueError("takes only one of symbolic, onnxscript and translation")
        if not ways and not self.model_fields_set & {"ort_library", "reference"}:
            raise ValueError(
                "needs one of symbolic, onnxscript and translation, "
                "or a kernel: ort_library or reference"
            )
        if not ways and "opset" in self.model_fields_set:
            raise ValueError("takes `opset` with symbolic, onnxscript or translation only")
        return self


class ExpectTable(Table):
    """A foreseen failure. Strict: a pass, or another failure, is red."""

    opset: OpsetCondition | None = None
    """Which opsets: `13`, `"<14"`, `">=18"`, `"9..13"`, a list of these, `"*"`; without it: all."""
    device: Line = "*"
    """Which devices: a name, or a pattern such as `"cu*"`."""
    stage: Literal["source", "capture", "convert", "structure", "load", "parity"] | None = None
    """Where it fails; without it: at any stage."""
    check: Line | None = None
    """The check that says no; without it: any."""
    match: Line = Field(default="")
    """A part of the message, compared without regard to case."""
    reason: Line
    """Why this is accepted."""
    issue: Line = Field(default="")
    """Where it is followed up."""
    until: Day = Field(default="")
    """The last day on which it is accepted; without it there is no end."""


class SkipTable(Table):
    """Cells that are not run; the report shows the reason."""

    opset: OpsetCondition | None = None
    """Which opsets, as for `expect`."""
    device: Line = "*"
    """Which devices, as for `expect`."""
    reason: Line
    """Why they are not run."""


class OptionsTable(Table):
    """Arguments of `torch.onnx.export`, by their own names."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "args": "say it with `inputs` and `constants`",
        "artifacts_dir": "the tool chooses where files go",
        "custom_translation_table": "say it with `custom_ops`, and `translation`",
        "dynamic_axes": "say it with the model's own key `dynamic_axes`",
        "dynamic_shapes": "say it with axis names in `shape`, and `axes`",
        "dynamo": "say it with `exporter`",
        "f": "the tool chooses where files go",
        "fallback": "say it with `exporter`; nothing falls back silently",
        "input_names": "say it with `inputs`",
        "kwargs": "say it with `inputs` and `constants`, and `at`",
        "model": "say it with `source`",
        "opset_version": "say it with `opsets`",
        "output_names": "say it with `outputs`",
        "verify": "every file is verified by the checks",
        **REMOVED_OPTIONS,
    }

    export_params: bool = True
    """Both exporters: store the weights in the file. With `false` they are inputs of the file,
    after the declared ones, in the order of `state_dict` and by its names; the graph is then
    neither folded nor optimised, which would compute new weights."""
    keep_initializers_as_inputs: bool = False
    """Both exporters: list the weights as inputs, too."""
    verbose: bool = False
    """Both exporters: print more into the cell's log."""
    external_data: bool = True
    """Both exporters: store the weights beside the file, or with `false` inside it, which holds up
    to 2 GB. Without a word as the size asks: from 1 MB on beside it."""
    optimize: bool = True
    """dynamo: optimise the graph."""
    report: bool = False
    """dynamo: write its own report, `logs/<opset>/report.md` in the model's build folder."""
    profile: bool = False
    """dynamo: profile the export, into the report or the log; needs the package pyinstrument."""
    dump_exported_program: bool = False
    """dynamo: store the captured program, `logs/<opset>/program.pt2`."""
    autograd_inlining: bool = True
    """TorchScript: inline `torch.autograd.Function`."""
    custom_opsets: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Both exporters: the operator domains besides ONNX's own that the file may have, with their
    versions. TorchScript writes them so, dynamo takes them from the translation."""
    do_constant_folding: bool = True
    """TorchScript: compute what is constant at export time."""
    export_modules_as_functions: bool = False
    """TorchScript: keep modules as ONNX functions."""
    operator_export_type: Literal["ONNX", "ONNX_ATEN", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH"] = (
        "ONNX"
    )
    """TorchScript: what to do with operators that ONNX lacks."""
    training: Literal["EVAL", "PRESERVE", "TRAINING"] = "EVAL"
    """TorchScript: the mode of the exported graph."""


DynamicAxes = Annotated[
    Annotated[Items[Index], Tag("<list>")] | Annotated[dict[IndexKey, AxisName], Tag("<table>")],
    discriminate_form("expected a list of dimensions or a table of their names"),
]


def list_explicit_values(table: FrozenModel) -> dict[str, Any]:
    """The keys that the user wrote, in the order of the fields, with their values."""
    written = table.model_fields_set
    return {key: getattr(table, key) for key in type(table).model_fields if key in written}
