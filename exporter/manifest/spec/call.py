"""What the call of a model is made of, resolved: inputs, axes, constants, containers, cases.

In: nothing. Out: frozen values, which `spec.py` puts into a `ModelSpec`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from exporter.core.frozen_model import FrozenModel, Items, Plain

#: A size, or the name of an axis.
Dim = int | str
#: A number, a truth value or a nested list of them: the value of an input in a case.
Number = bool | int | float
Tensor = TypeAliasType("Tensor", "Number | list[Tensor]")
#: ONNX's operators take no complex numbers: in a file they are pairs along one more dimension.
_PARTS = {"complex64": "float32", "complex128": "float64"}


class Axis(FrozenModel):
    """A dynamic axis: a symbolic dimension, the sizes that it promises and the one exported at."""

    name: str
    example: int | None
    """The size in the declared inputs; None where only outputs have this axis."""
    min: int = 1
    max: int | None = None
    multiple_of: int = 1
    probe: Items[int] = ()
    """Sizes that the user asked to be probed, besides the chosen ones."""

    def allows(self, size: int) -> bool:
        """Whether the contract covers `size`."""
        inside = self.min <= size and (self.max is None or size <= self.max)
        return inside and size % self.multiple_of == 0

    @property
    def factors(self) -> tuple[int, int | None] | None:
        """The least and the greatest number of times that `multiple_of` fits into a size.

        None where every size is a multiple, and where the example is the multiple itself: captured
        at a factor of 1, a dimension would be taken for a constant.
        """
        step = self.multiple_of
        if step == 1 or self.example is None or self.example < 2 * step:
            return None
        return -(-self.min // step), None if self.max is None else self.max // step


class Fill(FrozenModel):
    """How an input gets its values. Only the fields of its kind are set."""

    kind: Literal[
        "normal",
        "zeros",
        "ones",
        "arange",
        "uniform",
        "randint",
        "bernoulli",
        "value",
        "file",
        "python",
    ]
    low: float = 0.0
    """`uniform`: lowest value; `randint`: lowest integer."""
    high: float = 1.0
    """`uniform`: upper end; `randint`: upper end, excluded."""
    probability: float = 0.5
    value: Tensor = 0
    file: str = ""
    """`x.npy`, `x.pb`, `x.npz:key` or `x.safetensors:key`, relative to the manifest."""
    python: str = ""
    """`file.py:function`, called as `function(shape, dtype, generator)`, returns the tensor."""

    @property
    def is_random(self) -> bool:
        """Whether another seed gives other values."""
        return self.kind in ("normal", "uniform", "randint", "bernoulli", "python")


class TensorSpec(FrozenModel):
    """An input or an output, as PyTorch has it and as the file does."""

    name: str
    shape: Items[Dim]
    dtype: str = "float32"

    @property
    def is_complex(self) -> bool:
        """Whether the file holds its real and imaginary parts along a last dimension of 2."""
        return self.dtype in _PARTS

    @property
    def file_dtype(self) -> str:
        """The dtype in the file and in the samples."""
        return _PARTS.get(self.dtype, self.dtype)

    @property
    def file_shape(self) -> tuple[Dim, ...]:
        """The dimensions in the file and in the samples."""
        return (*self.shape, 2) if self.is_complex else self.shape


class Input(TensorSpec):
    """One input of the graph, in the order of the exported file."""

    at: str
    """Where the value goes in the call: `args[0]`, `kwargs.mask`, `kwargs.past[0].key`. Empty where
    `inputs_from` makes the call: then it is the next tensor there."""
    fill: Fill = Fill(kind="normal")
    scalar: bool = False
    """Whether the model takes a Python number; the file has a tensor of shape `[]`."""
    optional: bool = False
    """Whether a case may leave it out."""


class Constant(FrozenModel):
    """A fixed argument of the call that is no graph input."""

    at: str
    value: Plain


class Container(FrozenModel):
    """What stands at a place of the call that holds inputs and constants."""

    at: str
    type: str
    """`list`, `tuple`, `dict`, or what makes it: `file.py:attr` relative to the manifest, or
    `package.module:attr`."""

    @property
    def is_object(self) -> bool:
        """Whether user code makes it."""
        return ":" in self.type


class InputsFrom(FrozenModel):
    """A function that returns the whole call, `(args, kwargs)`."""

    function: str
    """`file.py:function`, relative to the manifest."""
    takes_sizes: bool = False
    """Whether it is called with the size of each axis, by name. Only the worker can tell."""


class Case(FrozenModel):
    """One more input set: other values for named inputs, other sizes for named axes."""

    name: str
    values: dict[str, Tensor] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    """Values from files, as in `Fill.file`."""
    absent: Items[str] = ()
    """Optional inputs that are left out."""
    axes: dict[str, int] = Field(default_factory=dict)
    inputs_from: InputsFrom | None = None
