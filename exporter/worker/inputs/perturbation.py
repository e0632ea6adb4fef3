"""Other values for an input, which reveal constants that a trace stored.

Each element is mirrored at the middle of the fill's range. That changes the sign of sums, means
and elements, and with it the branch of the model. A new draw keeps that sign in half of all
models. The distances from the middle are drawn again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from exporter.jobs import Sample
from exporter.manifest import Axis, Fill, ModelSpec
from exporter.worker.inputs.input_sets import (
    InputSet,
    choose_usual_sets,
    count_elements,
    create_draw_set,
    create_size_set,
    find_distant_size,
    is_affordable,
)

_SEED = 0
#: The share of the elements to change.
_SHARE = 0.5


def is_binary(tensor: torch.Tensor) -> bool:
    """Return True for booleans, and for integers that are all 0 or 1."""
    if tensor.dtype is torch.bool:
        return True
    if tensor.is_floating_point() or tensor.is_complex():
        return False
    return bool(((tensor == 0) | (tensor == 1)).all())


def choose_binary_changes(tensor: torch.Tensor) -> torch.Tensor:
    """Return True for the elements of a binary tensor that a probe changes.

    A mask row without any allowed element has no defined result, whether 0 or 1 means allowed. So
    in every row, along every axis, an unchanged element of each value remains. Along the last axis
    the first one remains: an element of a causal mask sees only the elements before it. A single
    element changes. Along the only axis the last element remains instead, because models read the
    first one as a number.
    """
    axes = [axis for axis, size in enumerate(tensor.shape) if size > 1]
    if not axes:
        return torch.ones_like(tensor, dtype=torch.bool)
    *outer, row = axes
    values = tensor.to(torch.bool)
    is_single_axis = tensor.ndim == 1 or row < tensor.ndim - 1
    find_anchor = _find_last if is_single_axis else _find_first
    anchors = find_anchor(values, row) | find_anchor(~values, row)
    generator = torch.Generator().manual_seed(_SEED)
    changes = (torch.rand(tensor.shape, generator=generator) < _SHARE) & ~anchors
    is_unchanged = ~changes.any(row, keepdim=True)
    changes |= _find_last(~anchors, row) & is_unchanged
    for axis in outer:
        for members in (values, ~values):
            unchanged = members & ~changes
            is_lost = members.any(axis, keepdim=True) & ~unchanged.any(axis, keepdim=True)
            changes &= ~(_find_first(members, axis) & is_lost)
    return changes


def _find_first(members: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the first True of each row along an axis."""
    return members & (members.cumsum(axis) == 1)


def _find_last(members: torch.Tensor, axis: int) -> torch.Tensor:
    return _find_first(members.flip(axis), axis).flip(axis)


def mirror_values(
    fill: Fill, declared: torch.Tensor, generator: torch.Generator
) -> torch.Tensor | None:
    """Return values on the other side of the middle, at 0.5 to 1 of the distance.

    Returns:
        None if the fill has no middle or if no value changes.
    """
    match fill.kind:
        case "normal":
            middle = 0.0
        case "uniform":
            middle = (fill.low + fill.high) / 2
        case "randint":
            middle = (fill.low + fill.high - 1) / 2
        case _:
            return None
    factor = 0.5 + torch.rand(declared.shape, generator=generator) / 2
    wide = torch.complex128 if declared.is_complex() else torch.float64
    values = middle - (declared.to(wide) - middle) * factor
    if not (declared.is_floating_point() or declared.is_complex()):
        values = values.round()
    mirrored = values.to(declared.dtype)
    return None if torch.equal(mirrored, declared) else mirrored


def perturb_values(
    tensor: torch.Tensor, changed: torch.Tensor | None, chosen: InputSet
) -> torch.Tensor:
    """Return the values of the input that a set changes.

    Args:
        tensor: The declared values.
        changed: Other values of the same fill, if it can generate them.
        chosen: The input set with the factor or the increment.
    """
    if chosen.factor != 1.0:
        return tensor * chosen.factor
    if changed is not None:
        return changed
    return choose_nearby_values(tensor, increment=chosen.increment)


def choose_nearby_values(tensor: torch.Tensor, *, increment: int = 0) -> torch.Tensor:
    """Return other values near the given ones, such that most indices stay in range.

    Values of 0 and 1 may be a mask, so every row keeps some of them.

    Args:
        tensor: The declared values.
        increment: The number to add to integers, even if the sum is out of range.
    """
    if not tensor.numel():
        return tensor
    all_axes = tuple(range(tensor.ndim))
    flips = [all_axes, *((axis,) for axis in all_axes)]
    if is_binary(tensor) and not (increment and bool(tensor.all())):
        changes = choose_binary_changes(tensor)
        if increment:
            return tensor + increment * changes.to(tensor.dtype)
        if changes.any():
            return torch.where(changes, 1 - tensor.to(torch.int64), tensor).to(tensor.dtype)
        # Rows that change places stay valid, reversed rows may not.
        flips = flips[1:]
    if increment:
        return tensor + increment
    for axes in flips:
        flipped = tensor.flip(axes)
        if not torch.equal(flipped, tensor):
            return flipped
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor * 1.5 + 0.25
    # Subtract first: the last index of a table has a smaller neighbor only.
    return tensor - 1 if int(tensor.min()) > 0 else tensor + 1


#: A factor of 1,000 reveals a bound that normal noise never reaches, or a threshold near 0.
_FACTORS = (1e-3, 0.1, 10.0, 1e3)
_SEEDS = (1, 2)
_INCREMENT = 7
#: Multiple of the usual memory that the largest promised size may need.
_ROOM = 4
#: The last size of the sweep: resizing and remainders have a fault at single sizes.
_LAST_OF_SWEEP = 64
#: Elements of the largest tensor in the sweep, so that its runs take milliseconds.
_SMALL = 1 << 14


def choose_all_sets(spec: ModelSpec, lengths: Sequence[int] = ()) -> tuple[InputSet, ...]:
    """Return every input set of a contract once, the declared one first.

    Args:
        spec: The contract; without `thorough` the result has the usual sets only.
        lengths: The lengths of tables that an axis may exceed.
    """
    usual = choose_usual_sets(spec)
    if not spec.thorough:
        return usual
    declared = usual[0].sizes
    sets = {chosen.name: chosen for chosen in usual}
    for chosen in (*_vary_sizes(spec, declared, lengths), *_vary_values(spec, declared)):
        sets.setdefault(chosen.name, chosen)
    return tuple(sets.values())


def index_sets(
    spec: ModelSpec, lengths: Sequence[int], samples: Sequence[Sample]
) -> dict[tuple[str, str], InputSet]:
    """Return the input sets of stored samples by kind and name.

    Args:
        spec: The contract.
        lengths: The lengths of tables that an axis may exceed.
        samples: The samples; those of a group of files are not chosen by the contract.
    """
    chosen = [*choose_all_sets(spec, lengths)]
    for sample in samples:
        if sample.captures and sample.kind == "axis":
            chosen.append(create_size_set(spec, sample.axes))
        elif sample.captures:
            chosen.append(create_draw_set(spec, int(sample.name.split()[-1]) - 1))
    return {(each.kind, each.name): each for each in chosen}


def list_sweep(spec: ModelSpec, known: Sequence[Mapping[str, int]]) -> Iterator[InputSet]:
    """Yield sets that give each free axis each promised size up to 64, while tensors are small.

    All axes change at once, unless a tensor is too large or the contract forbids it.

    Args:
        spec: The contract.
        known: The sizes of existing samples, the declared ones first.
    """
    if spec.inputs_from is not None and not spec.inputs_from.takes_sizes:
        return
    declared, known = known[0], [dict(sizes) for sizes in known]
    columns = {
        axis.name: [size for size in range(_LAST_OF_SWEEP + 1) if axis.allows(size)]
        for axis in spec.free_axes
    }
    columns = {name: sizes for name, sizes in columns.items() if sizes}
    for row in range(max(map(len, columns.values()), default=0)):
        together = {
            name: sizes[(row + shift * len(sizes) // 3) % len(sizes)]
            for shift, (name, sizes) in enumerate(columns.items())
        }
        for group in ([together], [{name: size} for name, size in together.items()]):
            complete = [spec.complete_sizes({**declared, **proposed}) for proposed in group]
            fits = [
                sizes
                for sizes in complete
                if spec.allows_sizes(sizes) and count_elements(spec, sizes) <= _SMALL
            ]
            new = [sizes for sizes in fits if sizes not in known]
            yield from (create_size_set(spec, sizes) for sizes in new)
            known += new
            if fits:
                break


def _vary_sizes(
    spec: ModelSpec, declared: Mapping[str, int], lengths: Sequence[int]
) -> Iterator[InputSet]:
    for axis in spec.free_axes:
        for size in _propose_sizes(axis, lengths):
            fits = is_affordable(spec, axis, size, declared, room=_ROOM)
            sizes = spec.complete_sizes({**declared, axis.name: size})
            is_allowed = axis.allows(size) and spec.allows_sizes(sizes)
            if size != axis.example and is_allowed and fits:
                yield InputSet(name=f"{axis.name}={size}", kind="axis", sizes=sizes)
    yield from list_sweep(spec, [declared])


def _propose_sizes(axis: Axis, lengths: Sequence[int]) -> Iterator[int]:
    example = axis.example or 0
    near = find_distant_size(axis, avoid=(example,))
    yield 2 * axis.multiple_of
    if near and (far := find_distant_size(axis, avoid=(example, near))):
        yield far
    if axis.max is not None:
        yield axis.max - axis.max % axis.multiple_of
        return
    for length in lengths:
        # The last size inside a table of this length, and the first size outside.
        last = length - length % axis.multiple_of
        yield from (last, last + axis.multiple_of)


def _vary_values(spec: ModelSpec, declared: Mapping[str, int]) -> Iterator[InputSet]:
    for item in spec.inputs:
        # Such rows have no defined result, so a difference is only a note.
        if item.fill.masked_value is not None and item.shape and _is_exact(item.dtype):
            name = f"fully masked {item.name}"
            yield InputSet(name=name, kind="masked", sizes=declared, changed_input=item.name)
        # Other fills have a bound: an image in [0, 1] has no promise for the value 1,000.
        is_unbounded = item.fill.kind == "normal" and "float" in item.dtype
        for factor in _FACTORS if is_unbounded else ():
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


def _is_exact(dtype: str) -> bool:
    return dtype == "bool" or "int" in dtype
