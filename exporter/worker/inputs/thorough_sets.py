"""What `thorough` tries beyond the usual input sets.

In: a contract, and the lengths of the model's tables. Out: the usual input sets and more: each axis
farther away, at 2, at the largest size promised where memory allows, and just beyond each table;
inputs of other magnitudes, by other seeds, and larger integers. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from exporter.manifest import Axis, Input, ModelSpec
from exporter.worker.inputs.input_sets import (
    InputSet,
    choose_usual_sets,
    find_distant_size,
    is_affordable,
)

#: A bound that normal noise never reaches hides a factor of 1,000 away; a threshold near 0 too.
_FACTORS = (1e-3, 0.1, 10.0, 1e3)
_SEEDS = (1, 2)
_RAISED = 7
#: The largest size promised is worth four times the memory.
_ROOM = 4


def choose_all_sets(spec: ModelSpec, lengths: Sequence[int] = ()) -> tuple[InputSet, ...]:
    """Every input set of a contract, the declared one first; each once.

    Args:
        spec: The contract; without `thorough` there are only the usual ones.
        lengths: Of tables that an axis may be longer than.
    """
    usual = choose_usual_sets(spec)
    if not spec.thorough:
        return usual
    kept = {chosen.name: chosen for chosen in usual}
    for chosen in (*_sizes(spec, usual[0].sizes, lengths), *_values(spec, usual[0].sizes)):
        kept.setdefault(chosen.name, chosen)
    return tuple(kept.values())


def _sizes(
    spec: ModelSpec, declared: Mapping[str, int], lengths: Sequence[int]
) -> Iterator[InputSet]:
    for axis in spec.axes:
        if axis.example is None:
            continue
        for size in _further(axis, lengths):
            fits = is_affordable(spec, axis, size, declared, room=_ROOM)
            if size != axis.example and axis.allows(size) and fits:
                sizes = {**declared, axis.name: size}
                yield InputSet(name=f"{axis.name}={size}", kind="axis", sizes=sizes)


def _further(axis: Axis, lengths: Sequence[int]) -> Iterator[int]:
    example = axis.example or 0
    near = find_distant_size(axis, avoid=(example,))
    yield 2 * axis.multiple_of
    if near and (beyond := find_distant_size(axis, avoid=(example, near))):
        yield beyond
    if axis.max is not None:
        yield axis.max - axis.max % axis.multiple_of
        return
    for length in lengths:
        # The last size that a table of this length serves, and the first that it does not.
        last = length - length % axis.multiple_of
        yield from (last, last + axis.multiple_of)


def _values(spec: ModelSpec, declared: Mapping[str, int]) -> Iterator[InputSet]:
    for item in spec.inputs:
        for factor in _FACTORS if _is_unbounded(item) else ():
            name = f"{factor:g} x {item.name}"
            yield InputSet(
                name=name, kind="values", sizes=declared, changed_input=item.name, factor=factor
            )
        if not item.fill.is_random and "int" in item.dtype:
            name = f"much larger {item.name}"
            yield InputSet(
                name=name, kind="values", sizes=declared, changed_input=item.name, increment=_RAISED
            )
    if any(item.fill.is_random for item in spec.inputs):
        for seed in _SEEDS:
            yield InputSet(name=f"draw {seed + 1}", kind="values", sizes=declared, seed=seed)


def _is_unbounded(item: Input) -> bool:
    """Whether the fill sets no bound: of a picture in [0, 1] nothing is promised at 1,000."""
    return item.fill.kind == "normal" and "float" in item.dtype
