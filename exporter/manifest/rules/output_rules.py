"""The keys `compare` and `masked_by` of an output: comparators and masks that fit it."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.core.errors import suggest_name
from exporter.manifest.resolved.call import Dim
from exporter.manifest.resolved.model import Comparator
from exporter.manifest.rules.fills import COMPLEX, format_dims
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.signature import NamedShape, resolve_dtype
from exporter.manifest.syntax.fields import FLOATS
from exporter.manifest.syntax.values import KeyPath, quote

_FIX = "use an input with axes of the output, each once, and the size 1 elsewhere"


def resolve_comparators(
    entry: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]
) -> list[Comparator | None]:
    """Return the comparator of each output; report masks and comparators that do not fit it."""
    _check_masks(entry, shapes)
    comparators: list[Comparator | None] = []
    for index, table in enumerate(entry.settings.outputs):
        compare, path = table.compare, ("outputs", index, "compare")
        if compare is None:
            comparators.append(None)
            continue
        comparator = (
            Comparator(call=entry.check_function(path, compare))
            if isinstance(compare, str)
            else Comparator.from_fields(compare)
        )
        comparators.append(comparator)
        if problem := _find_comparator_problem(entry, index, comparator, shapes):
            entry.add_problem(path, problem)
    return comparators


def _find_comparator_problem(
    entry: EffectiveSettings,
    index: int,
    comparator: Comparator,
    shapes: Mapping[KeyPath, NamedShape],
) -> str:
    """Return why a comparator does not fit its output, or ""."""
    table = entry.settings.outputs[index]
    dtype = resolve_dtype(entry.settings, table)
    is_exact = dtype not in FLOATS and not (comparator.rows or comparator.call)
    if table.kind == "sequence" or dtype in COMPLEX or is_exact:
        kind = "a list of tensors" if table.kind == "sequence" else dtype
        return f"does not suit {kind}; remove it"
    if table.tolerance and not comparator.rows:
        return "replaces the tolerance; remove `tolerance` or `compare`"
    if table.masked_by and (comparator.rows or comparator.top_k or comparator.call):
        return "needs all values; remove `masked_by`, or use `cosine` or `sqnr`"
    if not comparator.rows:
        return ""
    dims = shapes["outputs", index].dims if ("outputs", index) in shapes else ()
    names = {each.name: number for number, each in enumerate(entry.settings.outputs)}
    leading = dims[: max(len(dims) - 1, 1)]
    if not dims:
        return "needs rows, and the output is a scalar; remove it"
    for name in comparator.along:
        if name not in names or name == table.name:
            return f"no other output has the name {quote(name)}{suggest_name(name, names)}"
        other, text = shapes["outputs", names[name]].dims, ""
        if other[: len(leading)] != leading:
            text = f"{quote(name)} {format_dims(other)} lacks the rows {format_dims(leading)}"
        elif entry.settings.outputs[names[name]].compare:
            text = f"{quote(name)} has a comparator of its own; remove one of the two"
        if text:
            return text
    return ""


def _check_masks(entry: EffectiveSettings, shapes: Mapping[KeyPath, NamedShape]) -> None:
    inputs = {shape.name: shape for shape in shapes.values() if shape.is_input}
    for index, table in enumerate(entry.settings.outputs):
        name, path = table.masked_by, ("outputs", index, "masked_by")
        if name is None or ("outputs", index) not in shapes:
            continue
        if name not in inputs:
            entry.add_problem(path, f"no input has this name{suggest_name(name, inputs)}")
        elif table.kind == "sequence":
            message = "a list of tensors has no common positions; remove `masked_by` or `kind`"
            entry.add_problem(path, message)
        elif problem := _find_mask_problem(inputs[name].dims, shapes["outputs", index].dims):
            mask = f"the mask {quote(name)} {format_dims(inputs[name].dims)}"
            message = f"{mask} does not fit the output: {problem}; {_FIX}"
            entry.add_problem(path, message)


def _find_mask_problem(mask: tuple[Dim, ...], output: tuple[Dim, ...]) -> str:
    dims = [dim for dim in mask if dim != 1]
    if not dims:
        return "it has no axis"
    for dim in dims:
        if dims.count(dim) > 1:
            return f"it has {_format_dim(dim)} twice"
        if dim not in output:
            return f"{format_dims(output)} lacks {_format_dim(dim)}"
        if output.count(dim) > 1:
            return f"{format_dims(output)} has {_format_dim(dim)} twice"
    return ""


def _format_dim(dim: Dim) -> str:
    return f"the axis {quote(dim)}" if isinstance(dim, str) else f"the size {dim}"
