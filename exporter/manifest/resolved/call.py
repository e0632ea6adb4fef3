"""The resolved types for the call of a model: inputs, axes, constants, containers, cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from exporter.core.frozen_model import FrozenModel, Items, Plain
from exporter.manifest.syntax.fields import (
    AxisSize,
    CallPath,
    Factor,
    Line,
    Pair,
    Real,
    require_match,
)
from exporter.manifest.syntax.table import FUNCTION, Key, Table


class SizeRule(FrozenModel):
    """The computation of the size of a derived axis. A kind ignores the fields of the others."""

    kind: Literal["sum", "difference", "product", "window"]
    operands: Items[int | str]
    """Sizes and names of axes; exactly one name for `window`."""
    stride: int = 1
    kernel: int = 1
    padding: int = 0

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes that determine the size, each once."""
        return tuple(dict.fromkeys(item for item in self.operands if isinstance(item, str)))

    @property
    def is_rising(self) -> bool:
        """Whether a larger axis never gives a smaller size."""
        return self.kind != "difference"

    def compute(self, sizes: Mapping[str, int]) -> int:
        """Return the size for the sizes of the other axes, by name.

        Raises:
            KeyError: If an axis has no size.
        """
        first, *others = (sizes[item] if isinstance(item, str) else item for item in self.operands)
        match self.kind:
            case "sum":
                return first + sum(others)
            case "difference":
                return first - sum(others)
            case "product":
                return first * prod(others)
            case "window":
                return (first + self._margin) // self.stride + 1

    @property
    def formula(self) -> str:
        """The computation as text: `past + seq`, `(length - 1)//2 + 1`."""
        signs = {"sum": " + ", "difference": " - ", "product": "*"}
        if self.kind != "window":
            return signs[self.kind].join(str(item) for item in self.operands)
        name, margin = str(self.operands[0]), self._margin
        if margin == -self.stride:
            return f"{name}//{self.stride}"
        shifted = f"({name} {'+' if margin > 0 else '-'} {abs(margin)})" if margin else name
        if self.stride > 1:
            return f"{shifted}//{self.stride} + 1"
        return f"{name} {'+' if margin >= 0 else '-'} {abs(margin + 1)}"

    @property
    def _margin(self) -> int:
        """The padding minus the part of a window that moves no step."""
        return 2 * self.padding - self.kernel


def complete_sizes(sizes: Mapping[str, int], rules: Mapping[str, SizeRule]) -> dict[str, int]:
    """Return the sizes with those of all derived axes that they determine; cycles get no size."""
    complete = {name: size for name, size in sizes.items() if name not in rules}
    pending = dict(rules)
    while ready := [name for name, rule in pending.items() if complete.keys() >= {*rule.axes}]:
        complete |= {name: pending.pop(name).compute(complete) for name in ready}
    return complete


def find_bases(names: Iterable[str], rules: Mapping[str, SizeRule]) -> tuple[str, ...]:
    """Return the axes that determine the named axes in the end, each once.

    An axis without a rule determines itself. An axis of a cycle has no base.
    """
    bases: dict[str, None] = {}
    pending, seen = list(names), set()
    while pending:
        name = pending.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if rule := rules.get(name):
            pending[:0] = rule.axes
        else:
            bases[name] = None
    return tuple(bases)


#: A size, or the name of an axis.
Dim = int | str
#: A value of an input in a case: a number, a Boolean or a nested list.
Number = bool | int | float
Tensor = TypeAliasType("Tensor", "Number | list[Tensor]")
#: Files store complex numbers as pairs of these dtypes, because ONNX's operators lack them.
_COMPONENT_DTYPES = {"complex64": "float32", "complex128": "float64"}


class Axis(FrozenModel):
    """A dynamic axis with its promised sizes and its example size."""

    name: str
    example: int | None
    """The size in the declared inputs; None if only outputs have this axis, and no rule."""
    min: int = 1
    max: int | None = None
    multiple_of: int = 1
    rule: SizeRule | None = None
    """The computation of the size from other axes; None if the axis is not derived."""

    @property
    def is_free(self) -> bool:
        """Whether the size can be chosen for an input set."""
        return self.example is not None and self.rule is None

    def allows(self, size: int) -> bool:
        inside = self.min <= size and (self.max is None or size <= self.max)
        return inside and size % self.multiple_of == 0

    @property
    def smallest(self) -> int:
        return -(-self.min // self.multiple_of) * self.multiple_of

    @property
    def factors(self) -> tuple[int, int | None] | None:
        """The smallest and the largest factor of `multiple_of` in a size.

        None if every size is a multiple, or if the example is the multiple itself: at a factor of
        1, capture would treat the dimension as a constant.
        """
        step = self.multiple_of
        if step == 1 or self.rule or self.example is None or self.example < 2 * step:
            return None
        return -(-self.min // step), None if self.max is None else self.max // step


class Fill(FrozenModel):
    """The rule that generates the values of an input. Only the fields of its kind are set."""

    kind: Literal[
        "normal",
        "zeros",
        "ones",
        "arange",
        "uniform",
        "randint",
        "bernoulli",
        "mask",
        "padding",
        "lengths_of",
        "value",
        "file",
        "image",
        "python",
        "function",
    ]
    """`function`: `inputs_from` returns the values."""
    low: float = 0.0
    """`uniform`: lowest value; `randint`: lowest integer."""
    high: float = 1.0
    """`uniform`: upper end; `randint`: upper end, excluded."""
    probability: float = 0.5
    side: Literal["", "left", "right", "random"] = ""
    """`mask` and `padding`: the position of the padding in each row."""
    axis: str = ""
    """`lengths_of`: the axis whose size is the largest length; `randint`: the axis whose size is
    the upper end, in place of `high`; empty if there is none."""
    value: Tensor = 0
    file: str = ""
    """`x.npy`, `x.pb`, `x.npz:key`, `x.safetensors:key` or a picture, relative to the manifest."""
    mode: Literal["", "RGB", "L", "Y"] = ""
    python: Annotated[str, FUNCTION] = ""
    """`file.py:function`, called as `function(shape, dtype, generator)`, returns the tensor."""

    @property
    def masked_value(self) -> int | None:
        """The value of masked elements, if an input with this fill may be a mask."""
        return {"ones": 0, "mask": 0, "zeros": 1, "padding": 1}.get(self.kind)

    def bind(self, sizes: Mapping[str, int]) -> Fill:
        if self.kind != "randint" or not self.axis:
            return self
        return self.model_copy(update={"high": float(sizes[self.axis])})

    @property
    def is_random(self) -> bool:
        """Whether another seed gives other values."""
        return self.kind not in ("zeros", "ones", "arange", "value", "file", "image")


class TensorSpec(FrozenModel):
    """An input or an output, in PyTorch and in the file."""

    name: str
    shape: Items[Dim]
    dtype: str = "float32"

    @property
    def is_complex(self) -> bool:
        """Whether the file stores real and imaginary parts along a last dimension of 2."""
        return self.dtype in _COMPONENT_DTYPES

    @property
    def file_dtype(self) -> str:
        return _COMPONENT_DTYPES.get(self.dtype, self.dtype)

    @property
    def file_shape(self) -> tuple[Dim, ...]:
        return (*self.shape, 2) if self.is_complex else self.shape


class Preprocess(Table):
    """The way from a raw sample, such as a picture, to the values of an input.

    Set `function`, or the other keys. With `callers`, it is compared with what PyTorch's program
    feeds to the model for real samples; a picture needs `layout`, `colour` and `range` for that.
    """

    function: Annotated[Line | None, FUNCTION] = None
    """`"prepare.py:load"`: called with a raw sample, it returns the array of the input. It needs no
    PyTorch."""
    layout: Annotated[
        str, require_match("(?!.*(.).*\\1)[A-Z]{0,8}", 'different letters, such as "NCHW"')
    ] = ""
    """`"NCHW"`: a letter for each dimension, with C for channels, H for the height, W for the
    width."""
    colour: Literal["RGB", "BGR", "L"] | None = None
    """The order of the channels; `"L"` is gray."""
    range: Pair | None = None
    """`[0, 1]`: the values of black and white, or the lowest and the highest value, before `mean`
    and `std`."""
    mean: Items[Real] = ()
    """Is subtracted from the values in `range`: one number, or one for each channel."""
    std: Items[Factor] = ()
    """Divides them afterwards: one number, or one for each channel."""
    size: Annotated[Items[AxisSize], Field(min_length=2, max_length=2)] | None = None
    """`[224, 224]`: the height and the width to which a picture is scaled. Without it: those of
    `shape`."""
    resize: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    """The filter of Pillow that scales it."""

    @model_validator(mode="after")
    def _check_form(self) -> Preprocess:
        others = self.model_dump(exclude_defaults=True).keys() - {"function"}
        if self.function and others:
            names = ", ".join(f"`{each}`" for each in sorted(others))
            raise ValueError(f"`function` does all; remove {names}")
        if not self.function and not others:
            raise ValueError("is empty; add `layout`, `colour` and `range`, or `function`")
        if (self.mean or self.std) and self.range is None:
            raise ValueError("`mean` and `std` are for the values of `range`; add it")
        if self.range is not None and self.range[0] >= self.range[1]:
            raise ValueError("the first number of `range` must be below the second")
        if self.colour in ("RGB", "BGR") and "C" not in self.layout:
            raise ValueError('`colour` needs the place of the channels; add `layout = "NCHW"`')
        if self.size and not {"H", "W"} <= {*self.layout}:
            raise ValueError('`size` needs H and W; add `layout = "NCHW"`')
        return self


def is_kept(old: object, new: object) -> bool:
    """Return whether a description is equal, or a new one."""
    return not old or old == new


#: The sentence about an input or an output.
MEANING = Key(affects="nothing", is_as_strict=is_kept)


class Input(TensorSpec):
    """One input of the graph, in the order of the exported file."""

    at: str
    """The path in the call: `args[0]`, `kwargs.mask`, `kwargs.past[0].key`. Empty if `inputs_from`
    creates the call: then the input is its next tensor."""
    fill: Fill = Fill(kind="normal")
    scalar: bool = False
    optional: bool = False
    meaning: Annotated[str, MEANING] = ""
    preprocess: Annotated[Preprocess | None, Key(affects="check", is_as_strict=is_kept)] = None


class Constant(FrozenModel):
    """A fixed argument of the call that is not an input of the graph."""

    at: str
    value: Plain


class Container(FrozenModel):
    """The type of a container in the call."""

    at: CallPath
    """The path in the call: `"kwargs.past"`, `"args[1][0]"`. If no input or constant has a path
    inside it, the container is empty."""
    type: Annotated[Line, FUNCTION]
    """`"list"`, `"tuple"`, `"dict"`, or a class or function: `"file.py:name"`, relative to the
    manifest, or `"package.module:name"`. It is called with the values at its positions, or with the
    values under its keys as keyword arguments, as for dataclasses and named tuples."""

    @property
    def is_object(self) -> bool:
        """Whether user code creates it."""
        return ":" in self.type


class InputsFrom(FrozenModel):
    """A function that returns the complete call, `(args, kwargs)`."""

    function: Annotated[str, FUNCTION]
    """`file.py:function`, relative to the manifest."""
    takes_sizes: bool = False
    """Whether it takes the size of each axis, by name. Only the worker can determine this."""


class Case(FrozenModel):
    """An additional input set: other values for some inputs, other sizes for some axes."""

    name: str
    fills: dict[str, Fill] = Field(default_factory=dict)
    """Other fills, by input."""
    absent: Items[str] = ()
    """Optional inputs that the case omits."""
    axes: dict[str, int] = Field(default_factory=dict)
    inputs_from: InputsFrom | None = None
