"""Calls from user code: the manifest key `inputs_from`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from exporter.core.import_object import load_attribute
from exporter.core.text import pluralize
from exporter.manifest import Constant, Container, InputsFrom, ModelSpec
from exporter.manifest.syntax.values import Step, format_call_path, parse_call_path
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import InputSet, select_inputs_function
from exporter.worker.inputs.other_values import perturb_values
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.process.setup import use_seed


@dataclass(slots=True)
class FlattenedCall:
    """The leaves and containers of a call by path, such as `args[0]` or `kwargs.past[1].key`."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    containers: dict[str, str] = field(default_factory=dict)

    def add(self, root: str, steps: tuple[Step, ...], value: Any) -> None:
        """Add a value with all values in it, in the order of PyTorch's flattening.

        Raises:
            Failure: Stage `source`, if the manifest has no notation for a container.
        """
        at = format_call_path(root, steps)
        if isinstance(value, torch.Tensor):
            self.tensors[at] = value
        elif value is None or isinstance(value, bool | int | float | str):
            self.constants[at] = value
        else:
            kind, items = _list_container_items(at, value)
            has_indices = all(isinstance(step, int) for step, _ in items)
            default = "tuple" if has_indices else "dict"
            if steps and (kind != default or not items):
                self.containers[at] = kind
            for step, item in items:
                self.add(root, (*steps, step), item)


def resolve_inputs_from(spec: ModelSpec, root: Path) -> ModelSpec:
    """Return the contract with the explicit call that `inputs_from` returns.

    Raises:
        Failure: Stage `source`, if the function fails or the manifest has no notation for its
            result.
    """
    with wrap_errors(Stage.SOURCE):
        cases = tuple(
            case.model_copy(
                update={"inputs_from": _inspect_parameters(case.inputs_from, spec, root)}
            )
            if case.inputs_from
            else case
            for case in spec.cases
        )
        if spec.inputs_from is None:
            return spec.model_copy(update={"cases": cases})
        source = _inspect_parameters(spec.inputs_from, spec, root)
        sizes = {axis.name: axis.example for axis in spec.axes if axis.example is not None}
        call = _call_function(source, spec, sizes, root, seed=spec.seed)
        second = _call_function(source, spec, sizes, root, seed=spec.seed)
        _require_same_values(source, call, second)
        if len(call.tensors) != len(spec.inputs):
            names = ", ".join(call.tensors) or "none"
            declared = ", ".join(item.name for item in spec.inputs)
            raise Failure(
                Stage.SOURCE,
                f"{source.function} returns {pluralize(len(call.tensors), 'tensor')} ({names}), "
                f"the entry declares {pluralize(len(spec.inputs), 'input')} ({declared})",
            )
        pairs = zip(spec.inputs, call.tensors, strict=True)
        resolved = spec.model_copy(
            update={
                "inputs": tuple(item.model_copy(update={"at": at}) for item, at in pairs),
                "constants": tuple(
                    Constant(at=at, value=value) for at, value in call.constants.items()
                ),
                "containers": tuple(
                    Container(at=at, type=kind) for at, kind in call.containers.items()
                ),
                "inputs_from": source,
                "cases": cases,
            }
        )
        if source.takes_sizes:
            return resolved
        # Without a parameter for the sizes, the tensors define the exported sizes.
        tensors = {item.name: call.tensors[item.at] for item in resolved.inputs}
        sizes = _measure_sizes(resolved, tensors, {}, source.function)
        axes = (
            axis.model_copy(update={"example": sizes[axis.name]}) if axis.name in sizes else axis
            for axis in spec.axes
        )
        return resolved.model_copy(update={"axes": tuple(axes)})


def draw_from_function(
    spec: ModelSpec, chosen: InputSet, inputs_from: InputsFrom, root: Path
) -> Tensors:
    """Return the tensors for an input set of a resolved contract.

    Raises:
        Failure: Stage `source`, if the tensors do not fit the declared ones, or if the call
            differs from the declared one in more than its tensors.
    """
    with wrap_errors(Stage.SOURCE):
        call = _call_function(inputs_from, spec, chosen.sizes, root, seed=spec.seed + chosen.seed)
        tensors = _match_declared_call(spec, call, inputs_from)
        changeable = [item.name for item in spec.inputs if item.fill.kind == "function"]
        if (name := chosen.changed_input) in changeable:
            second = _call_function(inputs_from, spec, chosen.sizes, root, seed=spec.seed + 1)
            changed = _match_declared_call(spec, second, inputs_from)[name]
            is_new = not chosen.increment and not torch.equal(tensors[name], changed)
            tensors[name] = perturb_values(tensors[name], changed if is_new else None, chosen)
        sizes = dict(chosen.sizes) if inputs_from.takes_sizes else {}
        _measure_sizes(spec, tensors, sizes, inputs_from.function)
        return {name: tensor.to(spec.export_device) for name, tensor in tensors.items()}


def measure_axes(spec: ModelSpec, chosen: InputSet, tensors: Tensors) -> Mapping[str, int]:
    """Return the axis sizes of an input set; if it is from user code, those of its tensors."""
    source = select_inputs_function(spec, chosen)
    return chosen.sizes if source is None else _measure_sizes(spec, tensors, {}, source.function)


def _inspect_parameters(inputs_from: InputsFrom, spec: ModelSpec, root: Path) -> InputsFrom:
    function = load_attribute(inputs_from.function, (root / spec.manifest).parent)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # the function has no readable signature
        parameters = []
    return inputs_from.model_copy(update={"takes_sizes": bool(parameters)})


def _call_function(
    inputs_from: InputsFrom, spec: ModelSpec, sizes: Mapping[str, int], root: Path, *, seed: int
) -> FlattenedCall:
    function = load_attribute(inputs_from.function, (root / spec.manifest).parent)
    with use_seed(seed), torch.no_grad():
        returned = function(dict(sizes)) if inputs_from.takes_sizes else function()
    match returned:
        case (tuple() | list() as args, dict() as kwargs):
            call = FlattenedCall()
            call.add("args", (), tuple(args))
            call.add("kwargs", (), kwargs)
            return call
    raise Failure(
        Stage.SOURCE,
        f"{inputs_from.function} returned a {type(returned).__name__}, expected (args, kwargs): "
        "a tuple and a dict",
    )


def _list_container_items(at: str, value: Any) -> tuple[str, list[tuple[Step, Any]]]:
    """Return the type of a container, as the manifest writes it, and its items."""
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    match value:
        case tuple() if hasattr(value, "_fields"):
            return kind, list(enumerate(value))
        case tuple() | list():
            return type(value).__name__, list(enumerate(value))
        case dict():
            return "dict", [(_convert_key(at, key), item) for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (each.name for each in dataclasses.fields(value) if each.init)
        return kind, [(name, getattr(value, name)) for name in fields]
    raise Failure(
        Stage.SOURCE,
        f"inputs_from: {at} is a {type(value).__name__}, expected {_EXPECTED}; for another class, "
        "write `inputs` with `at`, and `containers`",
    )


def _convert_key(at: str, key: object) -> Step:
    if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
        return key
    try:
        parse_call_path(f"kwargs.{key}")
    except ValueError:
        message = f"inputs_from: {at} has the key {key!r}, expected a name or an index"
        raise Failure(Stage.SOURCE, message) from None
    return str(key)


def _match_declared_call(spec: ModelSpec, call: FlattenedCall, inputs_from: InputsFrom) -> Tensors:
    """Return the tensors by name; fail if another part of the call is not as declared."""
    names = {item.at: item.name for item in spec.inputs}
    for item in spec.inputs:
        if item.scalar and isinstance(number := call.constants.get(item.at), bool | int | float):
            del call.constants[item.at]
            call.tensors[item.at] = torch.tensor(number, dtype=getattr(torch, item.dtype))
        elif item.optional and item.at in call.constants:
            del call.constants[item.at], names[item.at]
    _require_positions(inputs_from, names, call.tensors, "tensors")
    declared = {fixed.at: fixed.value for fixed in spec.constants}
    _require_positions(inputs_from, declared, call.constants, "constants")
    for at, value in call.constants.items():
        if value != declared[at] or type(value) is not type(declared[at]):
            raise Failure(
                Stage.SOURCE,
                f"{inputs_from.function} returns {value!r} at {at}, the declared call has "
                f"{declared[at]!r}: values other than tensors are constants of a file",
            )
    return {name: call.tensors[at] for at, name in names.items()}


def _require_positions(
    inputs_from: InputsFrom, expected: Mapping[str, Any], actual: Mapping[str, Any], kind: str
) -> None:
    if expected.keys() != actual.keys():
        returned, declared = (", ".join(sorted(each)) or "none" for each in (actual, expected))
        raise Failure(
            Stage.SOURCE,
            f"{inputs_from.function}: the {kind} are at {returned}, "
            f"in the declared call at {declared}",
        )


def _require_same_values(
    inputs_from: InputsFrom, call: FlattenedCall, second: FlattenedCall
) -> None:
    _require_positions(inputs_from, call.tensors, second.tensors, "tensors of its second call")
    for at, tensor in call.tensors.items():
        repeated = second.tensors[at]
        is_same = tensor.shape == repeated.shape and tensor.dtype is repeated.dtype
        if not is_same or not torch.allclose(tensor, repeated, rtol=0, atol=0, equal_nan=True):
            raise Failure(
                Stage.SOURCE,
                f"{inputs_from.function} returns other values at {at} in each call; draw them from "
                "PyTorch's own generator, which has a fixed seed",
            )


def _measure_sizes(
    spec: ModelSpec, tensors: Tensors, known: Mapping[str, int], function: str
) -> dict[str, int]:
    """Return the size of each axis in the tensors, which must be as declared."""
    sizes = dict(known)
    for item in spec.inputs:
        tensor = tensors[item.name]
        shape, dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        expected: list[int] = []
        if len(shape) == len(item.shape):
            expected = [
                sizes.setdefault(dim, size) if isinstance(dim, str) else dim
                for dim, size in zip(item.shape, shape, strict=True)
            ]
        if dtype != item.dtype or shape != expected:
            declared = ", ".join(
                f"{dim}={sizes[dim]}" if isinstance(dim, str) and dim in sizes else str(dim)
                for dim in item.shape
            )
            raise Failure(
                Stage.SOURCE,
                f"{function}: input '{item.name}': the values are {dtype} {shape}, "
                f"declared {item.dtype} [{declared}]",
            )
    complete = spec.complete_sizes(sizes)
    for name, size in complete.items():
        if sizes.get(name, size) != size:
            raise Failure(
                Stage.SOURCE,
                f"{function}: the axis '{name}' has the size {sizes[name]}, declared is "
                f"{spec.size_rules[name].formula} = {size}",
            )
    return complete


_EXPECTED = "tensors, numbers, text and None in tuples, lists, dicts, dataclasses and named tuples"
