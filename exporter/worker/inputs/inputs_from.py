"""Calls that user code makes: `inputs_from`.

In: a function that returns `(args, kwargs)`. Out: the contract with a place for every tensor, and
every other value as a constant of the call; and the tensors of an input set.

Everything after this works with places, constants and containers, whoever said them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from exporter.core.import_object import load_attribute
from exporter.manifest import (
    Case,
    Constant,
    Container,
    InputsFrom,
    ModelSpec,
)
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.flatten_call import FlattenedCall, flatten_call
from exporter.worker.inputs.input_sets import InputSet
from exporter.worker.inputs.perturbation import perturb_values
from exporter.worker.process.failure import Failure, wrap_errors


def select_inputs_function(spec: ModelSpec, chosen: InputSet) -> InputsFrom | None:
    """What makes the call of an input set; None where the tables say it."""
    by_case = chosen.case.inputs_from if chosen.case else None
    return by_case or spec.inputs_from


def resolve_inputs_from(spec: ModelSpec, root: Path) -> ModelSpec:
    """The contract with the call that `inputs_from` returns written out.

    Raises:
        Failure: of stage `source`, where the function fails, or returns what no table could say.
    """
    with wrap_errors(Stage.SOURCE):
        cases = tuple(_with_maker(case, spec, root) for case in spec.cases)
        if spec.inputs_from is None:
            return spec.model_copy(update={"cases": cases})
        maker = _looked_at(spec.inputs_from, spec, root)
        sizes = {axis.name: axis.example for axis in spec.axes if axis.example is not None}
        parts = _call(maker, spec, sizes, root, seed=spec.seed)
        again = _call(maker, spec, sizes, root, seed=spec.seed)
        _require_same(maker, parts, again)
        names = ", ".join(parts.tensors) or "none"
        if len(parts.tensors) != len(spec.inputs):
            declared = ", ".join(item.name for item in spec.inputs)
            raise Failure(
                Stage.SOURCE,
                f"{maker.function} returns {len(parts.tensors)} tensors ({names}), "
                f"declared are {len(spec.inputs)} inputs ({declared})",
            )
        placed = zip(spec.inputs, parts.tensors, strict=True)
        found = spec.model_copy(
            update={
                "inputs": tuple(item.model_copy(update={"at": at}) for item, at in placed),
                "constants": tuple(
                    Constant(at=at, value=value) for at, value in parts.constants.items()
                ),
                "containers": tuple(
                    Container(at=at, type=kind) for at, kind in parts.containers.items()
                ),
                "inputs_from": maker,
                "cases": cases,
            }
        )
        return found if maker.takes_sizes else _sized(found, parts)


def draw_from_function(spec: ModelSpec, chosen: InputSet, maker: InputsFrom, root: Path) -> Tensors:
    """The tensors of a settled contract's input set.

    Raises:
        Failure: of stage `source`, where the call differs from the declared one in more than its
            tensors, or they are not as declared.
    """
    with wrap_errors(Stage.SOURCE):
        parts = _call(maker, spec, chosen.sizes, root, seed=spec.seed + chosen.seed)
        tensors = _named(spec, parts, maker)
        if chosen.changed_input:
            again = _named(spec, _call(maker, spec, chosen.sizes, root, seed=spec.seed + 1), maker)
            before, fresh = tensors[chosen.changed_input], again[chosen.changed_input]
            is_new = not chosen.increment and not torch.equal(before, fresh)
            tensors[chosen.changed_input] = perturb_values(
                before, fresh if is_new else None, chosen
            )
        sizes = dict(chosen.sizes) if maker.takes_sizes else {}
        _measure(spec, tensors, sizes, maker.function)
        return {name: tensor.to(spec.export_device) for name, tensor in tensors.items()}


def measure_axes(spec: ModelSpec, chosen: InputSet, tensors: Tensors) -> Mapping[str, int]:
    """The sizes of the axes in an input set; where user code made it, those of its tensors."""
    maker = select_inputs_function(spec, chosen)
    return chosen.sizes if maker is None else _measure(spec, tensors, {}, maker.function)


def _with_maker(case: Case, spec: ModelSpec, root: Path) -> Case:
    if case.inputs_from is None:
        return case
    return case.model_copy(update={"inputs_from": _looked_at(case.inputs_from, spec, root)})


def _looked_at(maker: InputsFrom, spec: ModelSpec, root: Path) -> InputsFrom:
    function = _function(maker, spec, root)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # no readable signature
        parameters = []
    return maker.model_copy(update={"takes_sizes": bool(parameters)})


def _function(maker: InputsFrom, spec: ModelSpec, root: Path) -> Callable[..., Any]:
    found: Callable[..., Any] = load_attribute(maker.function, (root / spec.manifest).parent)
    return found


def _call(
    maker: InputsFrom, spec: ModelSpec, sizes: Mapping[str, int], root: Path, *, seed: int
) -> FlattenedCall:
    function = _function(maker, spec, root)
    with torch.random.fork_rng(devices=()), torch.no_grad():
        torch.manual_seed(seed)
        returned = function(dict(sizes)) if maker.takes_sizes else function()
    match returned:
        case (tuple() | list() as args, dict() as kwargs):
            parts = FlattenedCall()
            flatten_call(parts, "args", (), tuple(args))
            flatten_call(parts, "kwargs", (), kwargs)
            return parts
    raise Failure(
        Stage.SOURCE,
        f"{maker.function} returned a {type(returned).__name__}, expected (args, kwargs): "
        "a tuple and a dict",
    )


def _named(spec: ModelSpec, parts: FlattenedCall, maker: InputsFrom) -> Tensors:
    """The tensors by name, of a call that is otherwise the declared one."""
    wanted = {item.at: item.name for item in spec.inputs}
    for item in spec.inputs:
        if item.scalar and isinstance(number := parts.constants.get(item.at), bool | int | float):
            del parts.constants[item.at]
            parts.tensors[item.at] = torch.tensor(number, dtype=getattr(torch, item.dtype))
        elif item.optional and item.at in parts.constants:
            del parts.constants[item.at], wanted[item.at]
    _require_places(maker, wanted, parts.tensors, "the tensors")
    declared = {fixed.at: fixed.value for fixed in spec.constants}
    _require_places(maker, declared, parts.constants, "the other values")
    for at, value in parts.constants.items():
        if value != declared[at] or type(value) is not type(declared[at]):
            raise Failure(
                Stage.SOURCE,
                f"{maker.function} returns {value!r} at {at}, the declared call has "
                f"{declared[at]!r}: a file keeps what is no tensor",
            )
    return {name: parts.tensors[at] for at, name in wanted.items()}


def _require_places(
    maker: InputsFrom, wanted: Mapping[str, Any], found: Mapping[str, Any], what: str
) -> None:
    if wanted.keys() != found.keys():
        both = (", ".join(sorted(places)) or "none" for places in (found, wanted))
        stand, declared = both
        raise Failure(
            Stage.SOURCE,
            f"{maker.function}: {what} stand at {stand}, in the declared call at {declared}",
        )


def _require_same(maker: InputsFrom, one: FlattenedCall, perturb_values: FlattenedCall) -> None:
    _require_places(maker, one.tensors, perturb_values.tensors, "on its second call the tensors")
    for at, tensor in one.tensors.items():
        again = perturb_values.tensors[at]
        is_same = tensor.shape == again.shape and tensor.dtype is again.dtype
        both_nan = (tensor != tensor) & (again != again) if is_same else None  # noqa: PLR0124 - NaN
        if both_nan is None or not bool(((tensor == again) | both_nan).all()):
            raise Failure(
                Stage.SOURCE,
                f"{maker.function} gives other values at {at} in each call: draw them from "
                "PyTorch's own generator, which is seeded before",
            )


def _sized(spec: ModelSpec, parts: FlattenedCall) -> ModelSpec:
    """A contract whose axes have the sizes that the tensors came with."""
    tensors = dict(zip((item.name for item in spec.inputs), parts.tensors.values(), strict=True))
    maker = spec.inputs_from.function if spec.inputs_from else ""
    sizes = _measure(spec, tensors, {}, maker)
    axes = (
        axis.model_copy(update={"example": sizes[axis.name]}) if axis.name in sizes else axis
        for axis in spec.axes
    )
    return spec.model_copy(update={"axes": tuple(axes)})


def _measure(
    spec: ModelSpec, tensors: Tensors, known: Mapping[str, int], function: str
) -> dict[str, int]:
    """The size of each axis in the tensors, which must be as declared."""
    sizes = dict(known)
    for problem in _misfits(spec, tensors, sizes):
        raise Failure(Stage.SOURCE, f"{function}: {problem}")
    return sizes


def _misfits(spec: ModelSpec, tensors: Tensors, sizes: dict[str, int]) -> Iterator[str]:
    for item in spec.inputs:
        tensor = tensors[item.name]
        shape, dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        wanted: list[int] = []
        if len(shape) == len(item.shape):
            wanted = [
                sizes.setdefault(dim, size) if isinstance(dim, str) else dim
                for dim, size in zip(item.shape, shape, strict=True)
            ]
        if dtype != item.dtype or shape != wanted:
            declared = ", ".join(
                f"{dim}={sizes[dim]}" if isinstance(dim, str) and dim in sizes else str(dim)
                for dim in item.shape
            )
            yield (
                f"input '{item.name}' came out as {dtype} {shape}, "
                f"declared {item.dtype} [{declared}]"
            )
