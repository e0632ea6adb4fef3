"""The key `thorough`: more sizes of each axis, and more values of each input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from exporter.manifest import ModelSpec
from exporter.worker.inputs.input_sets import (
    InputSet,
    choose_usual_sets,
    create_draw_set,
    is_affordable,
    list_sweep,
)

#: A factor of 1,000 reveals a bound that normal noise never reaches, or a threshold near 0.
_FACTORS = (1e-3, 0.1, 10.0, 1e3)
_SEEDS = (1, 2)
_INCREMENT = 7
#: Multiple of the usual memory that the largest promised size may need.
_THOROUGH_ROOM = 4


def list_further_sets(
    spec: ModelSpec, declared: Mapping[str, int], lengths: Sequence[int]
) -> Iterator[InputSet]:
    """Yield the sets; `lengths` are those of tables that an axis may exceed."""
    yield from _vary_sizes(spec, declared, lengths)
    yield from _vary_values(spec, declared)


def _vary_sizes(
    spec: ModelSpec, declared: Mapping[str, int], lengths: Sequence[int]
) -> Iterator[InputSet]:
    for axis in spec.free_axes:
        # The last size inside a table of each length, and the first size outside.
        last = [each - each % axis.multiple_of for each in lengths if axis.max is None]
        for size in (size for each in last for size in (each, each + axis.multiple_of)):
            sizes = spec.complete_sizes({**declared, axis.name: size})
            fits = is_affordable(spec, axis, sizes, room=_THOROUGH_ROOM)
            is_allowed = axis.allows(size) and spec.allows_sizes(sizes)
            if size != axis.example and is_allowed and fits:
                yield InputSet(name=f"{axis.name}={size}", kind="axis", sizes=sizes)
    yield from list_sweep(spec, [declared])


def _vary_values(spec: ModelSpec, declared: Mapping[str, int]) -> Iterator[InputSet]:
    for item in spec.inputs:
        # Such rows have no defined result, so a difference is only a note.
        is_exact = item.dtype == "bool" or "int" in item.dtype
        if item.fill.masked_value is not None and item.shape and is_exact:
            name = f"fully masked {item.name}"
            yield InputSet(name=name, kind="masked", sizes=declared, changed_input=item.name)
        # Other fills have a bound: an image in [0, 1] has no promise for the value 1,000.
        is_unbounded = item.fill.kind == "normal" and "float" in item.dtype
        if is_unbounded:
            for factor in _FACTORS:
                name = f"{factor:g} x {item.name}"
                yield InputSet(
                    name=name, kind="values", sizes=declared, changed_input=item.name, factor=factor
                )
        is_mask = any(output.masked_by == item.name for output in spec.outputs)
        if not item.fill.is_random and "int" in item.dtype and not is_mask:
            yield InputSet(
                name=f"much larger {item.name}",
                kind="values",
                sizes=declared,
                changed_input=item.name,
                increment=_INCREMENT,
            )
    if any(item.fill.is_random for item in spec.inputs):
        yield from (create_draw_set(spec, seed) for seed in _SEEDS)


def choose_all_sets(spec: ModelSpec, lengths: Sequence[int] = ()) -> tuple[InputSet, ...]:
    """Return every input set of a contract once, the declared one first.

    `lengths`: The lengths of tables that an axis may exceed, for `thorough`.
    """
    usual = choose_usual_sets(spec)
    if not spec.thorough:
        return usual
    sets = {chosen.name: chosen for chosen in usual}
    for chosen in list_further_sets(spec, usual[0].sizes, lengths):
        sets.setdefault(chosen.name, chosen)
    return tuple(sets.values())
