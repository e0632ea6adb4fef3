"""Resolve named dimensions and `[axes]` into dynamic axes with example sizes.

An axis without an example gets a prime from 3 that no other axis has, so that the exported graph
distinguishes them. The sizes 0 and 1 are never examples, because the exporter specializes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exporter.core.errors import suggest_name
from exporter.manifest.resolved.call import Axis, SizeRule, find_bases
from exporter.manifest.rules import derived_axes
from exporter.manifest.rules.axis_sizes import find_free_sizes, format_size_limits, list_sizes
from exporter.manifest.rules.derived_axes import list_needed_axes
from exporter.manifest.rules.layers import EffectiveSettings, Layer
from exporter.manifest.rules.signature import NamedShape, resolve_shapes
from exporter.manifest.schema.tables import AxisTable
from exporter.manifest.syntax.values import KeyPath, format_key, quote

#: The keys of an axis whose size other axes determine.
_DERIVED_KEYS = frozenset({"sum", "difference", "product", "of", "stride", "kernel", "padding"})


def _derives(tables: Mapping[str, AxisTable]) -> bool:
    """Return whether a table has a key of a derived axis."""
    return any(table.model_fields_set & _DERIVED_KEYS for table in tables.values())


def _list_needed_axes(tables: Mapping[str, AxisTable], shapes: Iterable[str]) -> Iterable[str]:
    """Return the axes of shapes, those that they are computed from, and limits of their sizes.

    The tables may contain axes of other models.
    """
    if not _derives(tables):
        return shapes
    needed: Iterable[str] = list_needed_axes(tables, shapes)
    return needed


def resolve_axes(entry: EffectiveSettings, shapes: Sequence[NamedShape]) -> tuple[Axis, ...]:
    """Return every axis in order of first appearance in the inputs and then the outputs.

    Axes that no shape has, but that other axes are computed from, follow.
    """
    names = {dim: None for shape in shapes for dim in shape.dims if isinstance(dim, str)}
    inputs = frozenset(
        dim for shape in shapes if shape.is_input for dim in shape.dims if isinstance(dim, str)
    )
    all_tables = entry.settings.axes if entry.has_valid("axes") else {}
    names |= dict.fromkeys(_list_needed_axes(all_tables, names))
    for name in all_tables:
        if name not in names and entry.find_layer(("axes", name)) is entry.own_layer:
            hint = suggest_name(name, names)
            entry.add_problem(("axes", name), f"no input or output has this axis{hint}")
    tables = {name: table for name, table in all_tables.items() if name in names}
    rules: dict[str, SizeRule] = {}
    if _derives(tables):
        rules = derived_axes.resolve_size_rules(entry, tables, inputs)
    bases = find_bases(rules, rules)
    sized = inputs.union(bases) - rules.keys()
    axes = [
        _resolve_axis(
            entry, shapes, name, tables.get(name, AxisTable()), rules.get(name), name in sized
        )
        for name in names
    ]
    if rules:
        axes = derived_axes.complete_examples(entry, shapes, axes, inputs)
    used = {axis.example for axis in axes if axis.name in sized and axis.example is not None}
    used |= {axis.example for axis in axes if axis.rule and axis.example is not None}
    complete = []
    for axis in axes:
        example = axis.example
        if axis.name in sized and example is None:
            example = next(find_free_sizes(axis, used), None)
            if example is None and list_sizes(axis, axis.min):
                sizes = format_size_limits(axis)
                message = f"takes sizes of {sizes}, and none of them is free for the example"
                entry.add_problem(("axes", axis.name), message)
            if example:
                used |= {example}
        is_sized = axis.name in sized or axis.rule is not None
        complete.append(axis.model_copy(update={"example": example if is_sized else None}))
    return tuple(complete)


def check_shared_axes(defaults: Layer, entries: Sequence[EffectiveSettings]) -> None:
    """Report axes in `[defaults]` that no model has, to each model with these defaults."""
    for name in defaults.table.axes:
        users = [model for model in entries if model.find_layer(("axes", name)) is defaults]
        shapes = [shape for model in users for shape in resolve_shapes(model)]
        names = {dim for shape in shapes for dim in shape.dims if isinstance(dim, str)}
        names |= {*_list_needed_axes(defaults.table.axes, names)}
        if name not in names and all(model.has_valid("inputs", "outputs") for model in users):
            message = f"no model with these defaults has this axis{suggest_name(name, names)}"
            for model in users:
                key_path = (*defaults.path, "axes", name)
                model.report.add(defaults.file.build_problem(key_path, message))


def _resolve_axis(
    entry: EffectiveSettings,
    shapes: Sequence[NamedShape],
    name: str,
    table: AxisTable,
    rule: SizeRule | None,
    is_free: bool,
) -> Axis:
    """Return the axis with the example of the user, or None as example if there is none."""
    axis = Axis.from_fields(table, name=name, example=None, rule=rule)
    key_path: KeyPath = ("axes", name)
    if axis.max is not None and axis.max < axis.min:
        entry.add_problem(
            (*key_path, "max"),
            f"{axis.max} is below the smallest size, {axis.min}; increase it or reduce `min`",
        )
    elif not list_sizes(axis, axis.min):
        message = f"{axis.multiple_of} has no multiple from {axis.min} to {axis.max}; change `max`"
        entry.add_problem((*key_path, "multiple_of"), message)
    if "example" in table.model_fields_set and not is_free:
        message = "only outputs have this axis, so the inputs determine its size; remove it"
        if rule:
            message = f"the size of this axis is {rule.formula}; remove it"
        entry.add_problem((*key_path, "example"), message)
    examples = [((*key_path, "example"), table.example)] if table.example is not None else []
    examples += [
        ((*shape.path, "shape", index), size)
        for shape in shapes
        for index, size in shape.sizes.items()
        if shape.dims[index] == name
    ]
    if examples and is_free:
        example_path, size = examples[0]
        if size < 2:
            message = f"the example of the dynamic axis {quote(name)} is {size}, which the exporter"
            message += " would turn into a constant; write at least 2"
            entry.add_problem(example_path, message)
        else:
            check_size(entry, axis, example_path, size)
    for other_path, size in examples[1:]:
        if size != examples[0][1]:
            first = f"{format_key(examples[0][0])} has {examples[0][1]}"
            message = f"the axis {quote(name)} has the size {size} here, but {first}"
            entry.add_problem(other_path, message)
    return axis.model_copy(update={"example": examples[0][1] if examples and is_free else None})


def check_size(entry: EffectiveSettings, axis: Axis, key_path: KeyPath, size: int) -> None:
    if not axis.allows(size):
        limits = format_size_limits(axis)
        entry.add_problem(
            key_path, f"the axis {quote(axis.name)} takes sizes of {limits}, not {size}"
        )
