"""The reasons of a call in PyTorch that fails.

The model runs once more, and each operator is recorded.
"""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from exporter.core.text import is_out_of_resources, join_names, pluralize
from exporter.manifest import Fill, Input, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.dependencies.source_files import find_frame_line
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import InputSet, select_inputs_function
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.reference.eager_run import EagerCall, call_model, list_leaves, run_model
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.torch_private import internals

_SHOWN_INPUTS = 3
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_INDEX_ERROR = re.compile(r"out of (range|bounds)")
#: `index 7 is out of bounds for dimension 0 with size 6`.
_SIZE = re.compile(r"with size (\d+)")
#: Errors of Python code that other sizes do not avoid.
_CODE_ERROR = re.compile(r"(TypeError|AttributeError|NameError|ImportError|ModuleNotFoundError):")
#: Errors of the call itself; an error inside the model has a line of the model.
_ARGUMENT_ERROR = re.compile(
    r"TypeError: .*(required .*argument|positional argument|unexpected keyword|multiple values)"
)
#: Errors of a model that takes keywords only: of its call, or where it reads one that is missing.
_KEYWORD_ERROR = re.compile(r"(TypeError|KeyError|AttributeError|UnboundLocalError):")


def explain_declared_call(
    failure: Failure, model: Model, spec: ModelSpec, declared: InputSet, inputs: Tensors
) -> Failure:
    if failure.status is Status.FAIL or is_out_of_resources(failure.message):
        return failure
    reason = _explain_index(failure.message, model, spec, declared, inputs)
    if not failure.lines and _ARGUMENT_ERROR.match(failure.message):
        reason = _describe_arguments(model, spec)
    if change := _find_working_call(failure.message, model, spec, declared):
        reason = f"PyTorch accepts {change}{_describe_literal(failure, change, declared)}"
    elif not _CODE_ERROR.match(failure.message):
        reason = reason or _describe_inputs(spec, declared.sizes)
    failure.message = "; ".join(filter(None, (failure.message, reason)))
    return failure


def _describe_literal(failure: Failure, change: str, declared: InputSet) -> str:
    """Return how to keep an axis that the failing line fixes by a number, "" if it has none."""
    match = re.search(r" with shape = \[(.*?)\]$", change)
    name, _, number = (failure.lines[0] if failure.lines else "").rpartition(":")
    if not match or not number.isdecimal():
        return ""
    line = linecache.getline(str(Path(name).resolve()), int(number))
    sizes = (text for text in match[1].split(", ") if text.isdecimal())
    literals = [text for text in sizes if re.search(rf"[(,] *{text} *[,)]", line)]
    if not literals or not declared.sizes:
        return ""
    size = literals[0]
    return f"; to accept each size, compute the {size} at {failure.lines[0]} from a shape"


#: An argument of a function that takes no tensor.
_FLAG = re.compile(r"(\w+)\(\): argument '(\w+)' must be bool, not Tensor")


def _find_working_call(message: str, model: Model, spec: ModelSpec, declared: InputSet) -> str:
    """Return a change of the entry or of the line with which PyTorch runs, "" if none is known."""

    def runs(sizes: Mapping[str, int], key: str = "", values: Sequence[object] = ()) -> bool:
        pairs = zip(spec.inputs, values, strict=False)
        items = tuple(item.model_copy(update={key: value}) for item, value in pairs)
        return runs_with(items or spec.inputs, sizes)

    def runs_with(items: tuple[Input, ...], sizes: Mapping[str, int] = declared.sizes) -> bool:
        contract = spec.model_copy(update={"inputs": items})
        with suppress(Failure):
            # The working folder of a worker is the root of the project.
            inputs = draw_inputs(contract, replace(declared, sizes=sizes), Path())
            run_model(model, contract, inputs)
            return True
        return False

    names, sizes = [item.name for item in spec.inputs], declared.sizes
    if match := _FLAG.search(message):
        owner = next(each for each in (torch.nn.functional, torch) if hasattr(each, match[1]))
        function = getattr(owner, match[1])

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **{**kwargs, match[2]: bool(kwargs[match[2]])})

        with patch.object(owner, match[1], call):
            return f"{match[2]} = bool(...)" if runs(sizes) else ""
    if _ARGUMENT_ERROR.match(message):
        for pattern in ("args[0].{0}", "args[0][{1}]"):
            places = [pattern.format(name, index) for index, name in enumerate(names)]
            if runs(sizes, "at", places):
                pairs = zip(names, places, strict=True)
                return f"one container: {', '.join(f'{n}: at = {at!r}' for n, at in pairs)}"
    if change := _find_working_dtype(runs_with, spec, message):
        return change
    if _KEYWORD_ERROR.match(message):
        places = [f"kwargs.{name}" for name in names]
        if not any(item.at.startswith("kwargs.") for item in spec.inputs) and runs(
            sizes, "at", places
        ):
            return f"keywords: {', '.join(f'at = {at!r}' for at in places)}"
    is_size = not _CODE_ERROR.match(message) and spec.inputs_from is None
    # A size of 1 may broadcast, and a large one may need all memory.
    numbers = [int(text) for text in re.findall(r"(?<!\d)[2-9](?!\d)|[1-9]\d{1,3}(?!\d)", message)]
    return _find_working_sizes(runs, spec, sizes, numbers) if is_size else ""


#: The names of dtypes in messages of torch.
_DTYPES = {
    "Long": "int64",
    "Int": "int32",
    "BFloat16": "bfloat16",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "Bool": "bool",
}


def _find_working_dtype(runs: Any, spec: ModelSpec, message: str) -> str:
    """Return another dtype of one input, if the message names dtypes and PyTorch accepts it."""
    if "type" not in message or spec.inputs_from is not None:
        return ""
    named = [dtype for name, dtype in _DTYPES.items() if re.search(rf"\b{name}\b", message)]
    named += ["int64", "bool"] if "must be tensors used as indices" in message else []
    for item, dtype in product(spec.inputs, named):
        fill = item.fill
        if ("float" in dtype) is not ("float" in item.dtype):
            fill = Fill(kind="normal") if "float" in dtype else Fill(kind="randint", high=2)
        if dtype == "bool":
            fill = Fill(kind="bernoulli")
        changed = item.model_copy(update={"dtype": dtype, "fill": fill})
        items = tuple(changed if each == item else each for each in spec.inputs)
        if dtype != item.dtype and runs(items):
            return f"'{item.name}' with dtype = '{dtype}'"
    return ""


def _find_working_sizes(
    runs: Any, spec: ModelSpec, sizes: Mapping[str, int], numbers: Sequence[int]
) -> str:
    axes = [axis.name for axis in spec.free_axes if axis.max is None]
    if change := _find_working_shape(runs, spec, sizes, sizes):
        return change
    if axes:
        for factor in range(2, 33):
            tried = {**sizes, **{name: factor * (5 + 2 * n) for n, name in enumerate(axes)}}
            if runs(tried):
                limits = {
                    n: f"multiple_of = {factor}"
                    for n in axes
                    if not runs({**tried, n: tried[n] + 1})
                }
                if not limits:
                    for name in axes:
                        smallest = next(
                            n for n in range(1, tried[name] + 1) if runs({**tried, name: n})
                        )
                        if smallest > sizes[name]:
                            limits |= {name: f"min = {smallest}"}
                lines = [
                    f"axes.{n} = {{ example = {tried[n]}, {text} }}" for n, text in limits.items()
                ]
                if lines:
                    return f"only other sizes: {', '.join(lines)}"
    return _find_working_shape(runs, spec, sizes, numbers)


def _find_working_shape(
    runs: Any, spec: ModelSpec, sizes: Mapping[str, int], others: Iterable[str | int]
) -> str:
    """Return another size of one dimension of an input, beside an input that has its axis."""
    for item, other in product(spec.inputs, others):
        for dim, size in enumerate(item.shape):
            shape = [*item.shape[:dim], other, *item.shape[dim + 1 :]]
            shapes = [shape if each == item else each.shape for each in spec.inputs]
            if other not in item.shape and runs(sizes, "shape", shapes):
                axis, value = (other, size) if isinstance(other, str) else (size, other)
                pairs = (
                    f": '{each.name}' has {axis} = {sizes[str(axis)]}, and '{item.name}' "
                    f"{sizes.get(str(value), value)}"
                    for each in spec.inputs
                    if axis in each.shape and axis in sizes and each != item
                )
                return f"'{item.name}' with shape = {shape}{next(pairs, '')}"
    return ""


def describe_failed_call(
    failure: Failure, model: Model, spec: ModelSpec, chosen: InputSet, inputs: Tensors
) -> str:
    """Return the message of a failure on other inputs, with its reason and its line."""
    message = failure.message
    if chosen.kind == "values" or is_out_of_resources(message):
        return message  # such a set is no promise
    reason = _explain_index(message, model, spec, chosen, inputs)
    line = f" at {failure.lines[0]}" if failure.lines else ""
    return "; ".join(filter(None, (f"{message}{line}", reason)))


def explain_shapes(
    model: Model, spec: ModelSpec, calls: Sequence[EagerCall], problems: Sequence[Sequence[str]]
) -> Failure:
    """Return the failure of outputs that differ from the contract, by the problems of each call."""
    broken = [index for index, call in enumerate(calls) if problems[index] or call.error]
    first, *others = broken
    call = calls[first]
    fix = "correct the model, or declare the outputs as PyTorch returns them"
    lines: tuple[str, ...] = ()
    if call.error:
        message = f"PyTorch itself fails on {call.chosen.name}: {call.error}"
        fix = "fix the model, or promise less: narrow the axis with min, max or multiple_of"
    else:
        message = "; ".join(problems[first][:1])
        if call.chosen.kind != "declared":
            message = f"{call.chosen.name}: {message}"
        if more := len(problems[first]) - 1:
            message += f"; {pluralize(more, 'more problem')}"
        lines = _find_wrong_lines(model, spec, call, problems[first])
    if others and call.chosen.kind != "declared":
        message += f"; also on {join_names([calls[index].chosen.name for index in others])}"
    return Failure(Stage.SOURCE, f"{message}; {fix}", status=Status.FAIL, lines=lines)


def _find_wrong_lines(
    model: Model, spec: ModelSpec, call: EagerCall, problems: Sequence[str]
) -> tuple[str, ...]:
    """Return the lines that compute the outputs of these problems."""
    try:
        lines = _find_output_lines(model, spec, call.inputs)
    except Failure:  # a model may run once only
        return ()
    pairs = zip(spec.outputs, lines, strict=False)
    wrong = (
        line
        for output, line in pairs
        if any(f"output '{output.name}'" in problem for problem in problems)
    )
    return tuple(dict.fromkeys(line for line in wrong if line))


def _find_output_lines(model: Model, spec: ModelSpec, inputs: Tensors) -> tuple[str, ...]:
    """Return for each output the model's line that computes it; "" if it is unknown."""
    with wrap_errors(Stage.SOURCE), _log_operators() as log:
        leaves = list_leaves(call_model(model, spec, inputs), spec)
        firsts = (next(iter(leaf), None) if isinstance(leaf, list) else leaf for leaf in leaves)
        return tuple(log.lines.get(id(first), "") for first in firsts)


@dataclass(frozen=True, slots=True)
class _OperatorCall:
    """The arguments of one call of an operator."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True)
class _OperatorLog:
    """The operators of one run."""

    failing: _OperatorCall | None = None
    """The call that raised the exception, if an operator did."""
    lines: dict[int, str] = field(default_factory=dict)
    """The model's line by the identity of a result. A new result replaces a freed one."""


@contextmanager
def _log_operators() -> Iterator[_OperatorLog]:
    log = _OperatorLog()

    def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        log.failing = _OperatorCall(args, kwargs)
        returned = func(*args, **kwargs)
        log.failing = None
        # The working folder of a worker is the root of the project.
        line = find_frame_line(traceback.walk_stack(None), Path())
        for leaf in internals.tree_leaves(returned):
            log.lines[id(leaf)] = line
        return returned

    with create_mode(record):
        yield log


def _describe_arguments(model: Model, spec: ModelSpec) -> str:
    """Return the inputs of the entry beside the signature, or "" if the model has none."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # compiled code has no signature
        return ""
    names = (str(each.replace(annotation=inspect.Parameter.empty)) for each in parameters)
    arguments = [each.name for each in spec.inputs] + [each.at for each in spec.constants]
    return (
        f"the entry declares {join_names(arguments)}, the signature is ({', '.join(names)}); "
        "declare one input or constant for each argument"
    )


def _describe_inputs(spec: ModelSpec, sizes: Mapping[str, int]) -> str:
    inputs = [
        f"'{item.name}' {item.dtype} [{', '.join(map(str, item.shape))}]" for item in spec.inputs
    ]
    chosen = ", ".join(f"{name}={size}" for name, size in sizes.items())
    text = f"the declared inputs are {join_names(inputs, _SHOWN_INPUTS)}"
    return f"{text} with {chosen}" if chosen else text


def _explain_index(
    message: str, model: Model, spec: ModelSpec, chosen: InputSet, inputs: Tensors
) -> str:
    """Return the values and the limit of an index that is out of range, or ""."""
    if not _INDEX_ERROR.search(message):
        return ""
    with _log_operators() as log, suppress(Failure):
        run_model(model, spec, inputs)
    call = log.failing
    size = _find_table_size(call, message) if call is not None else None
    if call is None or size is None:
        return ""
    leaves = internals.tree_leaves((call.args, call.kwargs))
    tensors = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.numel())
    for index in (tensor for tensor in tensors if tensor.dtype in _INTEGERS):
        low, high = int(index.min()), int(index.max())
        if low >= 0 and high < size:
            continue
        limit = f"the table has {pluralize(size, 'row')}"
        integers = {name: each for name, each in inputs.items() if each.dtype in _INTEGERS}
        values = index.flatten().long()  # an index may have another shape than its input
        names = [n for n, each in integers.items() if torch.equal(each.flatten().long(), values)]
        if not names:
            return f"the indices are {low} to {high}, but {limit}"
        source = _describe_source(spec, chosen, names[0])
        subject = " or ".join(f"'{name}'" for name in names)
        return f"input {subject} has values from {low} to {high} ({source}), but {limit}"
    return ""


def _find_table_size(call: _OperatorCall, message: str) -> int | None:
    """Return the number of rows that an index of the operator may select."""
    if match := _SIZE.search(message):
        return int(match[1])
    table, second, third = (*call.args, None, None, None)[:3]
    if not isinstance(table, torch.Tensor) or not table.ndim:
        return None
    if not isinstance(second, int):
        return table.shape[0]  # a table of embeddings has its rows first
    # `index_select(table, dim, index)`; the number of `topk(table, 10)` is no dimension.
    return table.shape[second] if isinstance(third, torch.Tensor) else None


def _describe_source(spec: ModelSpec, chosen: InputSet, name: str) -> str:
    """Return the key of the manifest that determines the values of an input."""
    fill = next(item.fill for item in spec.inputs if item.name == name)
    case = chosen.case
    if case is not None and name in case.fills:
        return f"case '{case.name}'"
    function = select_inputs_function(spec, chosen)
    if function is not None and (fill.kind == "function" or (case and case.inputs_from)):
        return function.function
    if fill.kind == "randint":
        end = f'"{fill.axis}"' if fill.axis else f"{fill.high:g}"
        return f"`randint = [{fill.low:g}, {end}]`"
    return f"the fill `{fill.kind}`"
