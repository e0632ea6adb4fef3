"""Named dimensions and `[axes]` in, every dynamic axis with its example size out.

Without an example an axis gets a prime from 3 on that no other axis has, so that no two look alike
in the exported graph; 0 and 1 are never examples, because the exporter would specialise them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from math import isqrt

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings, Layer
from exporter.manifest.rules.signature import NamedShape, resolve_shapes
from exporter.manifest.schema.fields import MAX_SIZE
from exporter.manifest.schema.tables import AxisTable
from exporter.manifest.spec.call import Axis
from exporter.manifest.syntax.message_format import (
    KeyPath,
    format_key,
    join_words,
    quote,
)

#: How far to look for a prime: gaps between primes of this size are below 300.
_ATTEMPTS = 1000


def resolve_axes(model: EffectiveSettings, shapes: Sequence[NamedShape]) -> tuple[Axis, ...]:
    """Every axis in order of first appearance, over the inputs and then the outputs."""
    names = {dim: None for shape in shapes for dim in shape.dims if isinstance(dim, str)}
    tables = model.settings.axes if model.has("axes") else {}
    for name in tables:
        if name not in names and model.origin(("axes", name)) is model.own:
            hint = suggest_nearest(name, names)
            model.add_problem(("axes", name), f"no input or output has this axis{hint}")
    axes = [_said(model, shapes, name, tables.get(name, AxisTable())) for name in names]
    return _with_examples(model, axes, collect_input_axes(shapes))


def check_shared_axes(defaults: Layer, models: Sequence[EffectiveSettings]) -> None:
    """An axis in `[defaults]` has to be one that some model has."""
    for name in defaults.table.axes:
        takers = [model for model in models if model.origin(("axes", name)) is defaults]
        found = [shape for model in takers for shape in resolve_shapes(model)]
        names = {dim for shape in found for dim in shape.dims if isinstance(dim, str)}
        if name not in names and all(model.has("inputs", "outputs") for model in takers):
            message = f"no model that starts from here has this axis{suggest_nearest(name, names)}"
            for model in takers[:1]:
                model.report.add(defaults.file.problem((*defaults.path, "axes", name), message))


def collect_input_axes(shapes: Sequence[NamedShape]) -> frozenset[str]:
    """The axes whose size a caller can choose."""
    dims = (dim for shape in shapes if shape.is_input for dim in shape.dims)
    return frozenset(dim for dim in dims if isinstance(dim, str))


def format_size_limits(axis: Axis) -> str:
    """What sizes an axis takes, in words."""
    limits = [f"at least {axis.min}"]
    limits += [f"at most {axis.max}"] if axis.max is not None else []
    limits += [f"a multiple of {axis.multiple_of}"] if axis.multiple_of > 1 else []
    return join_words(limits)


def _said(
    model: EffectiveSettings, shapes: Sequence[NamedShape], name: str, table: AxisTable
) -> Axis:
    """The axis as the user has it: an example where one is given, else None."""
    axis = Axis(
        name=name,
        example=None,
        min=table.min,
        max=table.max,
        multiple_of=table.multiple_of,
        probe=table.probe,
    )
    place: KeyPath = ("axes", name)
    if axis.max is not None and axis.max < axis.min:
        model.add_problem((*place, "max"), f"is below the smallest size, {axis.min}")
    elif not _sizes(axis, axis.min):
        message = f"has no multiple from {axis.min} to {axis.max}"
        model.add_problem((*place, "multiple_of"), message)
    chooses = name in collect_input_axes(shapes)
    for index, size in enumerate(axis.probe):
        _check_size(model, axis, (*place, "probe", index), size)
    for key in ("example", "probe"):
        if key in table.model_fields_set and not chooses:
            model.add_problem(
                (*place, key), "only outputs have this axis; its size follows from inputs"
            )
    examples = [((*place, "example"), table.example)] if table.example is not None else []
    examples += _sizes_in_shapes(shapes, name)
    if examples and chooses:
        _check_example(model, axis, *examples[0])
    for path, size in examples[1:]:
        if size != examples[0][1]:
            first = f"{format_key(examples[0][0])} says {examples[0][1]}"
            model.add_problem(path, f"the axis {quote(name)} has the size {size} here; {first}")
    return axis.model_copy(update={"example": examples[0][1] if examples else None})


def _sizes_in_shapes(shapes: Sequence[NamedShape], name: str) -> list[tuple[KeyPath, int]]:
    return [
        ((*shape.place, "shape", index), size)
        for shape in shapes
        for index, size in shape.sizes.items()
        if shape.dims[index] == name
    ]


def _check_example(model: EffectiveSettings, axis: Axis, path: KeyPath, size: int) -> None:
    if size < 2:
        name = quote(axis.name)
        message = f"the example of the dynamic axis {name} is {size}, which the exporter would bake"
        model.add_problem(path, f"{message} into the graph; write at least 2")
    else:
        _check_size(model, axis, path, size)


def _check_size(model: EffectiveSettings, axis: Axis, path: KeyPath, size: int) -> None:
    if not axis.allows(size):
        message = (
            f"the axis {quote(axis.name)} takes sizes of {format_size_limits(axis)}, not {size}"
        )
        model.add_problem(path, message)


def _with_examples(
    model: EffectiveSettings, axes: Sequence[Axis], chosen: frozenset[str]
) -> tuple[Axis, ...]:
    used = {axis.example for axis in axes if axis.name in chosen and axis.example is not None}
    complete = []
    for axis in axes:
        example = axis.example if axis.name in chosen else None
        if axis.name in chosen and example is None:
            example = next(_free_sizes(axis, used), None)
            if example is None and _sizes(axis, axis.min):
                sizes = format_size_limits(axis)
                message = f"takes sizes of {sizes}, of which none is free to export at"
                model.add_problem(("axes", axis.name), message)
            used |= {example} if example else set()
        complete.append(axis.model_copy(update={"example": example}))
    return tuple(complete)


def _free_sizes(axis: Axis, used: set[int]) -> Iterator[int]:
    """Prime multiples from 3 on, then whatever is allowed from 2 on, that no axis has."""
    factors = range(max(3, -(-axis.min // axis.multiple_of)), MAX_SIZE)
    primes = (factor for factor in islice(factors, _ATTEMPTS) if _is_prime(factor))
    multiples = (axis.multiple_of * prime for prime in primes)
    others = islice(_sizes(axis, max(2, axis.min)), _ATTEMPTS)
    return (size for size in chain(multiples, others) if axis.allows(size) and size not in used)


def _sizes(axis: Axis, first: int) -> range:
    """The sizes from `first` on that the contract allows."""
    step = axis.multiple_of
    last = MAX_SIZE if axis.max is None else axis.max
    return range(-(-first // step) * step, last + 1, step)


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, isqrt(number) + 1))
