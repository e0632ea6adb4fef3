"""Requests to the process that measures operators, and its results."""

from __future__ import annotations

from enum import StrEnum

from exporter.core.frozen_model import FrozenModel, Items


class CallResult(StrEnum):
    """The result of one exported call."""

    RIGHT = "right"
    """The file has PyTorch's outputs."""
    WRONG = "wrong"
    """The file has other outputs, dtypes or shapes."""
    REFUSED = "refused"
    """The exporter raises."""
    INVALID = "invalid"
    """The runtime rejects the file, or fails in it."""
    NO_KERNEL = "no kernel"
    """The runtime lacks an operator of the file."""
    CRASH = "crash"
    """The process ended, or did not finish in time."""


class CallOutcome(FrozenModel):
    """The result of one call by one exporter at one opset."""

    result: CallResult
    message: str = ""


class MeasuredCall(FrozenModel):
    """One call of an operator."""

    operator: str
    """`aten::add`."""
    text: str
    """`add(float32[5, 5], float32[5], alpha=2)`."""
    features: Items[str]
    """The properties in which calls differ: `alpha=2`, `input of rank 0`, `without dim`."""
    outcomes: dict[str, CallOutcome]
    """By column: `torchscript 18`."""


class TestedFunction(FrozenModel):
    """The calls of one OpInfo."""

    __test__ = False  # pytest collects classes with this prefix
    name: str
    """The name in torch's tests: `nn.functional.conv2d`, `std.unbiased`."""
    calls: Items[MeasuredCall] = ()
    random: int = 0
    """Samples with other outputs in a second run, so that nothing can be compared."""
    other: int = 0
    """Samples without a tensor as a result, or with calls of several operators."""
    problem: str = ""
    """The reason if there are no samples."""


class MeasureRequest(FrozenModel):
    """A request to measure functions."""

    folder: str
    """Absolute: the results, one file for each function. Existing ones are not measured again."""
    functions: Items[str] = ()
    """Names of OpInfo; empty: all."""
    torchscript: Items[int]
    """Opsets."""
    dynamo: Items[int]


class MeasureResponse(FrozenModel):
    """The end of a measurement."""

    functions: Items[str]
    """The names of all selected functions."""
    problems: Items[str] = ()
    """Requested names that torch's tests do not have; nothing was measured then."""
