"""One run of a model in PyTorch, as declared or in float64, and snapshots of its state."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.utils.flop_counter import FlopCounterMode

from exporter.checks.comparison.compare_outputs import find_compared_positions
from exporter.core.text import is_out_of_resources, pluralize
from exporter.manifest import ModelSpec
from exporter.records.record import Stage, Status
from exporter.runtimes.session import OnnxValue, list_items
from exporter.worker.inputs.call import (
    Tensors,
    build_tensor_call,
    from_numpy,
    to_numpy,
    view_as_real,
)
from exporter.worker.inputs.input_sets import (
    InputSet,
    create_size_set,
    is_affordable,
    list_largest_sizes,
)
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model import captured_models
from exporter.worker.model.call_objects import record_object_outputs, register_output_classes
from exporter.worker.model.exported_program import find_program
from exporter.worker.model.model_kinds import Model
from exporter.worker.model.onnx_model import OnnxModel
from exporter.worker.process.failure import Failure, format_error, wrap_errors
from exporter.worker.process.fork_call import compute_in_fork
from exporter.worker.process.setup import apply_state
from exporter.worker.reference import large_float64
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.torch_private import internals

# The fork server loads them before it forks.

#: One output; a list is a sequence.
Returned: TypeAlias = "torch.Tensor | list[torch.Tensor]"
Outputs = tuple[Returned, ...]
#: Leaves with their paths: `['logits']`, `[0]`, or "" for a single output.
_Leaves = list[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class EagerCall:
    """One call of the model in PyTorch, with its outputs or its error."""

    chosen: InputSet
    inputs: Tensors
    outputs: Outputs | None
    error: str = ""


def to_value(output: Returned) -> OnnxValue:
    return [to_numpy(item) for item in output] if isinstance(output, list) else to_numpy(output)


def from_value(value: OnnxValue) -> Returned:
    """Return an output as tensors; complex numbers stay pairs."""
    return [from_numpy(item) for item in value] if isinstance(value, list) else from_numpy(value)


def list_leaves(returned: Any, spec: ModelSpec) -> list[Any]:
    """Return the objects that are outputs, as the model returned them."""
    return [leaf for _, leaf in list_named_leaves(returned, spec)]


def flatten_outputs(returned: Any, spec: ModelSpec) -> Outputs:
    """Return the outputs without a comparison with the contract; all must be tensors."""
    return tuple(_copy_output(leaf) for _, leaf in list_named_leaves(returned, spec))


def require_declared_outputs(returned: Any, spec: ModelSpec) -> Outputs:
    """Return the outputs if they are as declared, or raise a failure of stage `source`."""
    leaves = list_named_leaves(returned, spec)
    if problem := _find_problem(leaves, spec):
        described = ", ".join(f"{path or 'the result'}: {_describe(leaf)}" for path, leaf in leaves)
        message = f"the model returns {pluralize(len(leaves), 'output')} ({described}); {problem}"
        raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    for (_, leaf), output in zip(leaves, spec.outputs, strict=True):
        for item in list_items(leaf):
            if item.is_complex() != output.is_complex:
                actual = str(item.dtype).removeprefix("torch.")
                message = f"output '{output.name}' is {actual}, declared {output.dtype}"
                raise Failure(Stage.SOURCE, message, status=Status.FAIL)
    return tuple(_copy_output(leaf) for _, leaf in leaves)


def list_named_leaves(returned: Any, spec: ModelSpec) -> _Leaves:
    """Return the leaves with their paths; a list of a script is one leaf."""
    is_leaf = (lambda value: isinstance(value, list)) if spec.capture == "script" else None
    try:
        pairs = internals.tree_flatten_with_path(returned, is_leaf=is_leaf)[0]
        named = [(internals.keystr(path), leaf) for path, leaf in pairs]
    except ValueError:  # a class that is registered without keys, such as diffusers' outputs
        leaves = internals.tree_leaves(returned, is_leaf=is_leaf)
        has_keys = isinstance(returned, Mapping) and len(returned) == len(leaves)
        named = [
            (f"[{key!r}]", leaf)
            for key, leaf in zip(returned if has_keys else range(len(leaves)), leaves, strict=True)
        ]
    return [
        (path, torch.tensor(leaf) if isinstance(leaf, int | float) else leaf)
        for path, leaf in named
        if leaf is not None
    ]


def _copy_output(leaf: Any) -> Returned:
    """Return a copy: a model may return a buffer that its next call changes."""
    if isinstance(leaf, list):
        return [view_as_real(item.detach().to("cpu", copy=True)) for item in leaf]
    if not isinstance(leaf, torch.Tensor):
        raise TypeError(f"only tensors can be outputs of a graph, not a {type(leaf).__name__}")
    return view_as_real(leaf.detach().to("cpu", copy=True))


def _find_problem(leaves: _Leaves, spec: ModelSpec) -> str:
    """Return the first problem with number, order or type of the outputs; "" if there is none."""
    names = ", ".join(item.name for item in spec.outputs)
    items = [item for _, leaf in leaves for item in (leaf if isinstance(leaf, list) else [leaf])]
    if any(_is_sparse(item) for item in items):
        return f"only dense tensors can be outputs of a graph ({names})"
    if not all(isinstance(item, torch.Tensor) for item in items):
        return f"only tensors can be outputs of a graph ({names})"
    if len(leaves) != len(spec.outputs):
        has_list = any(
            isinstance(leaf, list) or re.search(r"\[\d+\]$", path) for path, leaf in leaves
        )
        hint = ", and a list as one output has kind = 'sequence' and capture = 'script'"
        text = f"the entry declares {len(spec.outputs)} ({names}){hint if has_list else ''}"
        return text + _format_missing_outputs(leaves, spec)
    declared = [output.name for output in spec.outputs]
    returned = [path.removeprefix(".").removeprefix("['").removesuffix("']") for path, _ in leaves]
    pairs_of_names = zip(returned, declared, strict=True)
    # Names are assigned by position, so the file would have the name of another output.
    if wrong := [name for name, other in pairs_of_names if name != other and name in declared]:
        is_permuted = sorted(returned) == sorted(declared)
        moved = "them" if is_permuted else ", ".join(f"'{name}'" for name in wrong)
        return f"the entry declares {moved} in another order ({names})"
    pairs = [
        (isinstance(leaf, list), out) for (_, leaf), out in zip(leaves, spec.outputs, strict=True)
    ]
    if lists := [out.name for listed, out in pairs if listed and out.kind == "tensor"]:
        return f"a list of tensors is declared with kind = 'sequence' ({', '.join(lists)})"
    if tensors := [out.name for listed, out in pairs if not listed and out.kind != "tensor"]:
        return f"declared as a sequence, but not a list: {', '.join(tensors)}"
    return ""


def _format_missing_outputs(leaves: _Leaves, spec: ModelSpec) -> str:
    """Return the tables of outputs that the model returns and the entry lacks, or ""."""
    declared = [output.name for output in spec.outputs]
    paths = [re.sub(r"\W+", "_", path).strip("_") for path, _ in leaves]
    names = [f"output_{path}" if path.isdigit() else path for path in paths]
    is_named = set(declared) <= set(names)
    missing = [
        (name, leaf)
        for index, (name, (_, leaf)) in enumerate(zip(names, leaves, strict=True))
        if (name not in declared if is_named else index >= len(declared))
    ]
    if len(leaves) <= len(declared) or any(isinstance(leaf, list) for _, leaf in missing):
        return ""
    axes = {axis.example: f'"{axis.name}"' for axis in reversed(spec.free_axes) if axis.example}
    tables = []
    for name, leaf in missing:
        # An equal number may be another size, so only the first one is an axis.
        shape = [str(size) for size in leaf.shape]
        shape[:1] = [axes.get(size, str(size)) for size in leaf.shape[:1]]
        dtype = str(leaf.dtype).removeprefix("torch.")
        kind = "" if dtype == "float32" else f', dtype = "{dtype}"'
        tables.append(f'{{ name = "{name}", shape = [{", ".join(shape)}]{kind} }}')
    return f"; add {', '.join(tables)} to `outputs`"


def _is_sparse(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided


def _describe(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        layout = f"{leaf.layout} ".removeprefix("torch.") if _is_sparse(leaf) else ""
        return f"{layout}{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return f"list of {len(leaf)}" if isinstance(leaf, list) else type(leaf).__name__


def hide_masked_values(spec: ModelSpec, inputs: Tensors, outputs: Outputs) -> Outputs:
    """Return the outputs with 0 at masked positions, which are not compared."""
    if not any(output.masked_by for output in spec.outputs):
        return outputs
    hidden: list[Returned] = []
    for index, value in enumerate(outputs):
        allowed = None if isinstance(value, list) else _find(spec, index, inputs, value)
        if allowed is None or isinstance(value, list):
            hidden.append(value)
        else:
            hidden.append(torch.where(allowed, value, torch.zeros_like(value)))
    return tuple(hidden)


def copy_masked_values(
    spec: ModelSpec,
    inputs: Tensors,
    outputs: Outputs,
    other_inputs: Tensors,
    other_outputs: Outputs,
) -> Outputs:
    """Return other outputs with the declared values at positions that either mask excludes.

    The result differs from the declared outputs only at positions that both runs compare. An
    output with a mask and another shape becomes the declared one.
    """
    if not any(output.masked_by for output in spec.outputs):
        return other_outputs
    columns = zip(spec.outputs, outputs, other_outputs, strict=True)
    result: list[Returned] = []
    for index, (output, value, other_value) in enumerate(columns):
        if not output.masked_by or isinstance(value, list) or isinstance(other_value, list):
            result.append(other_value)
        elif value.shape != other_value.shape:
            result.append(value)
        else:
            positions = (_find(spec, index, each, value) for each in (inputs, other_inputs))
            compared = torch.ones_like(value, dtype=torch.bool)
            for allowed in positions:
                compared &= True if allowed is None else allowed
            result.append(torch.where(compared, other_value, value))
    return tuple(result)


def _find(spec: ModelSpec, index: int, inputs: Tensors, value: torch.Tensor) -> torch.Tensor | None:
    mask = inputs.get(spec.outputs[index].masked_by)
    if mask is None:
        return None
    arrays = {spec.outputs[index].masked_by: to_numpy(mask)}
    positions = find_compared_positions(spec, index, arrays, value.shape)
    return None if positions is None else torch.from_numpy(positions.copy())


#: Maximum size in bytes of weights that are copied in memory for a run in float64.
_COPIED = 1 << 29


class BufferSnapshot:
    """The buffers of a model, which a run may change (BatchNorm in training mode).

    As a context, it restores them at the end.

    `changed`: The names of the buffers that were written, replaced or added before a restoration.
    """

    def __init__(self, model: Model) -> None:
        self.changed: dict[str, None] = {}
        self._model, self._names = model, {name for name, _ in model.named_buffers()}
        self._buffers = [
            (module, name, f"{path}.{name}".removeprefix("."), buffer, buffer.clone())
            for path, module in model.named_modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.restore()

    def restore(self) -> None:
        with torch.no_grad():
            for module, name, path, buffer, values in self._buffers:
                is_replaced = getattr(module, name, None) is not buffer
                if is_replaced:
                    setattr(module, name, buffer)
                is_comparable = buffer.layout is torch.strided
                is_written = not (is_comparable and torch.equal(buffer, values))
                if is_written and not buffer.is_inference() and buffer.shape == values.shape:
                    buffer.copy_(values)
                if is_replaced or (is_written and is_comparable):
                    self.changed[path] = None
        # A new buffer remains: an attribute may tell the model that it exists.
        current = (name for name, _ in self._model.named_buffers())
        self.changed.update(dict.fromkeys(name for name in current if name not in self._names))


def run_declared_inputs(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    """Return the outputs for the declared inputs, compared with the declared outputs.

    Raises:
        Failure: Stage `source`, if the model does not run, or returns other outputs.
    """
    with wrap_errors(Stage.SOURCE):
        returned = call_model(model, spec, inputs)
        register_output_classes(returned)
        record_object_outputs(model, returned)
        return require_declared_outputs(returned, spec)


def run_model(model: Model, spec: ModelSpec, inputs: Tensors) -> Outputs:
    """Return the outputs for one input set.

    Raises:
        Failure: Stage `source`, if the model does not run on these inputs.
    """
    with wrap_errors(Stage.SOURCE):
        return flatten_outputs(call_model(model, spec, inputs), spec)


def build_float64_model(model: Model) -> tuple[Model | None, str]:
    """Return a model that computes in float64, or None and the reason.

    It is a copy. If the weights are large, they are in a file; see `large_float64.py`.
    """
    if isinstance(model, OnnxModel):
        return model.widen(), ""
    try:
        if _has_large_weights(model):
            return large_float64.build_model(model, _copy_in_float64), ""
        return _copy_in_float64(model, copy.deepcopy), ""
    except Exception as error:  # a model raises any error in a copy
        return None, f"the model cannot be copied to float64: {format_error(error)}"


def _copy_in_float64(
    model: torch.nn.Module, duplicate: Callable[[torch.nn.Module], torch.nn.Module]
) -> torch.nn.Module:
    program = find_program(model)
    if program is not None:
        captured: torch.nn.Module = captured_models.build_float64_module(program, duplicate)
        return captured
    copied = duplicate(model).double()
    for weight in (*copied.parameters(), *copied.buffers()):
        if weight.is_complex():  # `double` does not cast it
            weight.data = weight.data.to(torch.complex128)
    return copied


def describe_float64_run(model: Model, float64_model: Model | None) -> str:
    """Return how a large model runs in float64, "" for other models."""
    if isinstance(model, OnnxModel):
        return ""
    return large_float64.describe_run(float64_model) if _has_large_weights(model) else ""


def count_weights(model: Model) -> int:
    return sum(weight.numel() for weight in model.parameters())


def _has_large_weights(model: torch.nn.Module) -> bool:
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers())) > _COPIED


def _widen(value: torch.Tensor) -> torch.Tensor:
    """Return numbers with a point in float64 or complex128, and others as they are."""
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def run_in_float64(model: Model | None, spec: ModelSpec, inputs: Tensors) -> Outputs | None:
    """Return the outputs of a model of `build_float64_model` for the same values, or None."""
    if model is None:
        return None
    wide = {name: _widen(value) for name, value in inputs.items()}
    # A model that creates tensors by `dtype=torch.float32` in `forward` multiplies two dtypes.
    modes: list[AbstractContextManager[None]] = [nullcontext()]
    modes += [] if isinstance(model, OnnxModel) else [large_float64.compute_in_float64()]
    outputs: Outputs = ()
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of the tensors that a model creates in `forward`
    try:
        for mode in modes:
            with suppress(Failure), mode:
                outputs = run_model(model, spec, wide)
                break
    finally:
        torch.set_default_dtype(previous)
    return outputs if len(outputs) == len(spec.outputs) else None


def call_model(model: Model, spec: ModelSpec, inputs: Tensors) -> Any:
    """Return the unchanged result of a call in the state of the contract."""
    call = build_tensor_call(spec, inputs)
    with apply_state(spec):
        return model(*call.args, **call.kwargs)


#: Elements that PyTorch may compute at the largest size, about a third of a second.
_MOST_COMPUTED = 1 << 28
#: Multiplications that take the time of an element.
_FLOPS = 32
#: The multiple of the usual memory that a measured run may need.
_ROOM = 16
_TOO_LARGE = "the run computes too many elements"


def list_measured_sets(
    model: Model, spec: ModelSpec, root: Path, sets: Sequence[InputSet]
) -> tuple[list[InputSet], tuple[str, ...]]:
    """Return sets with largest sizes, of which a run shows that they are affordable.

    A wide tensor does not show whether a run grows with a size or with its square, as attention
    does. A count of elements is the same on each machine, unlike a time.

    `sets`: The usual sets, the declared one first.

    Returns:
        The sets, also those that PyTorch rejects, and a text for each axis whose largest size has
        no set.
    """
    if spec.inputs_from is not None and not spec.inputs_from.takes_sizes:
        return [], ()
    measured, unproved = [], []
    known = [each.sizes for each in sets if each.kind in ("declared", "axis")]
    for axis, sizes in list_largest_sizes(spec, known):
        chosen = create_size_set(spec, sizes)
        is_measured = is_affordable(spec, axis, sizes, room=_ROOM)
        is_cheap = partial(_is_cheap, model, spec, root, chosen)
        if is_measured and compute_in_fork(is_cheap):  # torch.cond remembers the dispatch mode
            measured.append(chosen)
        else:
            reached = max(each[axis.name] for each in known)
            text = f"a run at {axis.name}={sizes[axis.name]} is too large for each file"
            unproved.append(f"{axis.name} above {reached}: {text}")
    return measured, tuple(unproved)


def _is_cheap(model: Model, spec: ModelSpec, root: Path, chosen: InputSet) -> bool:
    """Return False if a run computes many elements; it ends as soon as that is certain."""
    inputs, counter = draw_inputs(spec, chosen, root), FlopCounterMode(display=False)
    total = 0

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal total
        result = func(*args, **kwargs)
        leaves = internals.tree_leaves(result)
        total += sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
        if total + counter.get_total_flops() / _FLOPS > _MOST_COMPUTED:
            raise MemoryError(_TOO_LARGE)
        return result

    try:
        with counter, create_mode(run):
            run_model(model, spec, inputs)
    except Failure as failure:
        return _TOO_LARGE not in failure.message and not is_out_of_resources(failure.message)
    return True
