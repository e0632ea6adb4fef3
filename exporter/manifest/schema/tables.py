"""The tables inside an entry: inputs, outputs, axes, constants, cases, tolerances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, Tag, model_validator

from exporter.core.frozen_model import Items
from exporter.manifest.resolved.call import Container, Preprocess
from exporter.manifest.resolved.model import (
    NUMBER_PLACEHOLDER,
    Bound,
    ComparatorTable,
    Kind,
    StateNames,
)
from exporter.manifest.syntax import fields
from exporter.manifest.syntax.table import Table
from exporter.manifest.syntax.values import join_words, unexpected_value

Side = Literal["left", "right", "random"]
ImageMode = Literal["RGB", "L", "Y"]


class FillTable(Table):
    """The rule that generates the values of an input: exactly one key, and `mode` of an image."""

    uniform: fields.Pair | None = None
    """Uniform random values between two numbers; floating dtypes."""
    randint: fields.IntegerRange | None = None
    """Random integers from the first number up to the second, which is excluded: `[0, 10]`. If the
    second is an axis, its size is the end: `[0, "nodes"]` are indices of nodes."""
    bernoulli: Annotated[float, Field(ge=0, le=1)] | None = None
    """Ones (or `true`) with this probability, else zeros."""
    mask: Side | None = None
    """A mask: 1 (or `true`) for elements, 0 for padding on this side of each row, which is the last
    axis; `"random"` mixes both. Rows have different lengths from 1 on, and one of several has no
    padding."""
    padding: Side | None = None
    """The opposite of `mask`: 1 (or `true`) for padding, such as `key_padding_mask`."""
    lengths_of: fields.AxisName | None = None
    """Integers from 1 to the size of this axis. One of several lengths is the size itself."""
    value: fields.TensorField | None = None
    """One number for all elements, or nested lists of the input's shape."""
    file: fields.DataFile | None = None
    """`"x.npy"`, `"x.pb"`, `"x.npz:key"` or `"x.safetensors:key"`. A
    dynamic axis has its size as example, if that is 2 or more. At other sizes, the values are cut,
    or repeated from the first."""
    image: fields.ImageFile | None = None
    """`"cat.jpg"`: a picture, scaled to the height and width of the input, which are its last
    dimensions, and repeated along the batch. Floats are from 0 to 1, integers from 0 to 255. It
    needs the package Pillow."""
    mode: ImageMode | None = None
    """With `image`: `"RGB"` (the default) has three channels; `"L"` (gray) and `"Y"` (the luma of
    YCbCr) have one. The channels precede the height."""
    python: fields.Line | None = None
    """`"file.py:function"`; called with shape, dtype and generator."""

    @model_validator(mode="after")
    def _check_one_key(self) -> FillTable:
        kinds = self.model_fields_set - {"mode"}
        if len(kinds) != 1:
            names = join_words(name for name in FillTable.model_fields if name != "mode")
            raise ValueError(f"needs exactly one of {names}")
        if self.mode is not None and "image" not in kinds:
            raise ValueError("`mode` needs `image`; remove `mode`")
        return self


FillName = Literal["normal", "zeros", "ones", "arange"]
FillField = Annotated[
    Annotated[FillName, Tag("<text>")] | Annotated[FillTable, Tag("<table>")],
    fields.discriminate_form("expected the name of a fill or a table"),
]
CaseValue = Annotated[
    Annotated[Literal[FillName, "none"], Tag("<text>")]
    | Annotated[FillTable, Tag("<table>")]
    | Annotated[fields.TensorField, Tag("<list>")],
    fields.discriminate_form(
        "expected a number, true, false, a list of them or a fill", takes_numbers=True
    ),
]


class RepeatedTable(Table):
    """A table that `repeat` copies."""

    repeat: fields.Repeat = Field(default_factory=dict)
    """`{ layer = 12 }` creates 12 inputs, with the numbers 0 to 11 for `{layer}` in `name`, `at`,
    `shape` and `fill.file`. Adjacent tables with the same `repeat` alternate: all of layer 0, then
    all of layer 1."""


class InputTable(RepeatedTable):
    """One input of the graph. The inputs have the order of the exported file."""

    misplaced_keys: ClassVar[Mapping[str, str]] = fields.INPUT_KEYS

    name: fields.Name = ""
    """The name in the file. Without it: the name of the parameter in the model's `forward`, which
    is read from the source without running it. An input inside a container, in `*args` or of
    `inputs_from` needs a name."""
    shape: Items[fields.DimField]
    """A size for a static dimension, a name for a dynamic axis; `[]` is a scalar."""
    dtype: fields.Dtype | None = None
    """A dtype of PyTorch. Without it: `precision` of the model, which an explicit one ignores, else
    float32. ONNX has no complex operators: `complex64` and `["n", 4]` are float32 and `["n", 4, 2]`
    in file and samples, by dynamo only."""
    at: fields.CallPath | None = None
    """The path of the value in the call: `"args[0]"`, `"kwargs.mask"`, `"args[1][0]"`,
    `"kwargs.past[0].key"`. Without it: the next position of `args`. Positions create a tuple and
    keys a dict, unless `containers` sets another type."""
    fill: FillField = "normal"
    """`"normal"`, `"zeros"`, `"ones"`, `"arange"`, or a table with one key. Random values depend on
    the model's `seed`. If the entry has `inputs_from`, the fill replaces the values of its
    function."""
    scalar: bool = False
    """The model takes a Python number instead of a tensor; the file has a tensor of shape `[]`."""
    meaning: fields.Line = ""
    """A sentence for the person who runs the file: `"the picture, upright"`."""
    preprocess: Preprocess | None = None
    """`{ layout = "NCHW", colour = "RGB", range = [0, 1], mean = [0.5], std = [0.5] }`, or `{
    function = "prepare.py:load" }`: how a raw sample becomes the input, for the card of a published
    file."""
    optional: bool = False
    """A case may omit the input by `values.NAME = "none"`: the model gets `None`, and the file no
    value. Only `capture = "script"` creates such inputs, from opset 15; otherwise the file has the
    input always or never."""


class ToleranceTable(Bound):
    """A bound, and tables with other bounds for a dtype or a device, by its name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Bound] = Field(init=False)


CompareField = Annotated[
    Annotated[fields.Line, Tag("<text>")] | Annotated[ComparatorTable, Tag("<table>")],
    fields.discriminate_form('expected a table of one comparator, or "file.py:function"'),
]


LabelsField = Annotated[
    Annotated[fields.Line, Tag("<text>")]
    | Annotated[Annotated[Items[fields.Line], Field(min_length=1)], Tag("<list>")],
    fields.discriminate_form("expected a list of labels or a file"),
]


class OutputTable(RepeatedTable):
    """One output of the graph, in order."""

    misplaced_keys: ClassVar[Mapping[str, str]] = fields.OUTPUT_KEYS

    name: fields.Name
    """The name in the file."""
    shape: Items[fields.DimField]
    """Sizes and axis names, as for inputs. An axis that only an output has is allowed."""
    dtype: fields.Dtype | None = None
    """The exporter checks it and never converts a tensor. Without it: the model's `precision`, else
    float32. Complex numbers are pairs in the file, as for inputs."""
    kind: Kind = "tensor"
    """`sequence` is a list of tensors with this `shape` and `dtype`; an axis that no tensor has may
    differ between them. It needs `capture = "script"` and opset 11, because a trace and dynamo
    return each item separately."""
    meaning: fields.Line = ""
    """A sentence for the person who runs the file: `"logits; softmax gives probabilities"`."""
    labels: LabelsField = ()
    """`["cat", "dog"]`, or `"labels.txt"` with one on each line: the names of the classes. A float
    output has one for each element of its last axis; each value of an integer output is the
    position of one, from 0."""
    tolerance: ToleranceTable | None = None
    """A tolerance for this output only."""
    compare: CompareField | None = None
    """The comparison in place of the tolerance: `{ cosine = 0.999 }`, `{ sqnr = 40 }`, `{ top_k = 5
    }`, `{ rows = "unordered" }`, or `"file.py:function"`, called with the arrays of the file and of
    PyTorch, which returns an error and its bound: see `checks.md`."""
    masked_by: fields.Name | None = None
    """An input with a mask: only values at positions with 1 (or `true`) are compared, with 0 if its
    fill is `padding`. Each axis of the mask is one of the output; its other dimensions are 1."""


class AxisTable(Table):
    """A dynamic axis and its promised sizes.

    An axis with `sum`, `difference`, `product` or `of` is derived: other axes determine its size,
    in inputs and in outputs. Its own `min`, `max` and `multiple_of` then limit the sizes of these
    axes: with `axes.total = { sum = ["past", "seq"], max = 64 }`, no larger sum is promised.
    """

    misplaced_keys: ClassVar[Mapping[str, str]] = fields.AXIS_KEYS

    example: fields.Example | None = None
    """The size for the export, at least 2. Without it: a prime that no other axis has."""
    min: fields.Size = 1
    """The smallest promised size; 0 if the axis may be empty, such as an initial cache."""
    max: fields.AxisSize | None = None
    """The largest promised size; without it there is no limit."""
    multiple_of: fields.AxisSize = 1
    """Every promised size is a multiple of this number."""
    sum: Items[fields.DimField] | None = None
    """`["past", "seq"]`: the sum of axes and sizes, such as a mask over old and new tokens."""
    difference: Items[fields.DimField] | None = None
    """`["total", "past"]`: the first axis or size minus all others."""
    product: Items[fields.DimField] | None = None
    """`["batch", 4]`: the product of axes and sizes."""
    of: fields.AxisName | None = None
    """The axis that is divided: `{ of = "length", stride = 2 }` is `length // 2`. With the other
    four keys, it is the size after a convolution or a pooling of that axis."""
    stride: fields.AxisSize = 1
    """With `of`: the divisor, and the stride of the window."""
    kernel: fields.AxisSize | None = None
    """With `of`: the size of the window, `dilation * (kernel - 1) + 1` if its elements have a
    distance. Without it: the stride."""
    padding: fields.Size = 0
    """With `of`: the padding on each side."""


class ConstantTable(RepeatedTable):
    """A fixed argument of the call that is not an input of the graph."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "none": "remove it: without `value`, the argument is None"
    }

    at: fields.CallPath
    """The path in the call, as for inputs."""
    value: fields.PlainField = None
    """Text, a number, true, false, or lists and tables of these. Without it: Python's `None`, which
    TOML lacks."""


class ContainerTable(Container, RepeatedTable):
    """A tuple, list, dict or object in the call that contains other values."""


class CaseTable(Table):
    """An additional input set, compared with PyTorch on every device."""

    name: fields.Name
    """The name in reports."""
    values: dict[str, CaseValue] = Field(default_factory=dict)
    """Other values for inputs, by name: a fill, such as `"ones"` or `{ randint = [0, 9] }`, which
    draws at any size; the values themselves, as in `fill.value`; or `"none"` to omit an optional
    input."""
    axes: dict[str, fields.Size] = Field(default_factory=dict)
    """Sizes for axes, by name."""
    inputs_from: fields.Line = Field(default="")
    """All inputs of this case: `"file.py:function"`, as the model's own `inputs_from`. Neither
    `values` nor the fills of the inputs change them."""


class PassTable(Table):
    """A pass with keyword arguments."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, fields.PlainField] = Field(init=False)

    call: fields.Line
    """`"file.py:function"`. All other keys are its keyword arguments."""


PassField = Annotated[
    Annotated[fields.Line, Tag("<text>")] | Annotated[PassTable, Tag("<table>")],
    fields.discriminate_form('expected "file.py:function" or a table with `call`'),
]


class WeightsTable(StateNames, Table):
    """A file of weights that has more than the state of the model, or other names."""

    file: fields.Line
    """The path."""


WeightsField = Annotated[
    Annotated[fields.Line, Tag("<text>")] | Annotated[WeightsTable, Tag("<table>")],
    fields.discriminate_form("expected a file or a table with `file`"),
]


DynamicAxes = Annotated[
    Annotated[Items[fields.Index], Tag("<list>")]
    | Annotated[dict[fields.IndexKey, fields.AxisName], Tag("<table>")],
    fields.discriminate_form("expected a list of dimensions or a table of their names"),
]


def _check_template(value: str) -> str:
    if NUMBER_PLACEHOLDER not in value:
        example = f'a name with "{NUMBER_PLACEHOLDER}" for the number'
        raise unexpected_value(f'{example}, such as "learned_{NUMBER_PLACEHOLDER}"', value)
    return value


ParametersField = Annotated[
    Annotated[Annotated[fields.Name, AfterValidator(_check_template)], Tag("<text>")]
    | Annotated[Annotated[Items[fields.Name], Field(min_length=1)], Tag("<list>")]
    | Annotated[Annotated[dict[fields.Line, fields.Name], Field(min_length=1)], Tag("<table>")],
    fields.discriminate_form("expected a name with a number, a list of names or a table of names"),
]
