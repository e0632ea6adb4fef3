"""Choice of the input sets that prove a contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import gcd, lcm, prod
from types import MappingProxyType
from typing import Literal

from exporter.manifest import Axis, Case, InputsFrom, ModelSpec

Sizes = Mapping[str, int]

#: Multiples to try, because models test for alignment to 2, 8 or 16.
_ALIGNMENTS = (16, 8, 4)
#: The last size of a sweep, in units of an axis: resizing and remainders fail at single sizes.
LAST_SIZE, _LAST_OF_LONG_SWEEP = 16, 64
#: Elements of the largest tensor, and weights, with which a run takes about a millisecond.
_SMALL, _FEW_WEIGHTS = 1 << 14, 1 << 20
#: Such runs that a sweep may take: a twentieth of the time of a small model's first cell.
SWEEP_RUNS = 16


def choose_combinations(
    spec: ModelSpec, declared: Sizes, usual: Sequence[Sizes]
) -> Iterator[dict[str, int]]:
    """Yield combinations of sizes that the contract allows, each once, if they are cheap."""
    known = [dict(sizes) for sizes in usual]
    limit = max(_LARGE, count_elements(spec, declared))
    for alternatives in _propose(spec.free_axes):
        for proposed in alternatives:
            sizes = spec.complete_sizes({**declared, **proposed})
            is_allowed = all(axis.allows(sizes[axis.name]) for axis in spec.free_axes)
            if is_allowed and spec.allows_sizes(sizes) and count_elements(spec, sizes) <= limit:
                if sizes not in known:
                    known.append(sizes)
                    yield sizes
                break


def count_elements(spec: ModelSpec, sizes: Sizes) -> int:
    """Return the number of elements of the largest tensor in the contract."""
    shapes = [*(item.shape for item in spec.inputs), *(item.shape for item in spec.outputs)]
    return max(count_shape(shape, sizes) for shape in shapes)


def count_shape(shape: Sequence[int | str], sizes: Sizes) -> int:
    return prod(sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in shape)


def _propose(axes: Sequence[Axis]) -> Iterator[list[dict[str, int]]]:
    """Yield lists of alternatives: the first one that is allowed and cheap is tried."""
    even = {axis.name: _find_multiple(axis, 2) for axis in axes}
    step = lcm(2, *(axis.multiple_of for axis in axes))
    equal = _round_up(max((2, *(axis.smallest for axis in axes))), step)
    yield [{axis.name: equal for axis in axes}, even]
    if len(axes) > 1:
        yield [{axis.name: max(axis.smallest, axis.multiple_of) for axis in axes}]
    for axis in axes:
        alternatives: list[dict[str, int]] = []
        for alignment in _ALIGNMENTS:
            size = _find_multiple(axis, alignment)
            alternatives.append({**even, axis.name: size})
            if len(axes) > 1:
                alternatives.append({axis.name: size})
        yield alternatives


def _find_multiple(axis: Axis, number: int) -> int:
    """Return the smallest multiple of a number and of the unit that the axis may have."""
    step = lcm(number, axis.multiple_of)
    return _round_up(max(axis.smallest, step), step)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


Allows = Callable[[int], bool]
Special = Literal["ends", "highest", "lowest", "constant", "rising", "multiples"]

#: Sizes to try before the search for a coprime size stops.
_SEARCH = 10_000
#: Elements of the largest tensor for a probe of the largest size: 256 MB of float32.
MOST_ELEMENTS = 1 << 26
#: Elements of the largest tensor above which a run is slow.
_LARGE = 1 << 17
#: Fills of numbers in a range, and fills of masks.
_NUMBERS = ("normal", "uniform", "randint")
_MASKS = ("bernoulli", "mask", "padding", "lengths_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """One set of inputs for PyTorch and for the file."""

    name: str
    kind: Literal["declared", "axis", "case", "values", "masked"]
    sizes: Mapping[str, int]
    case: Case | None = None
    changed_input: str = ""
    """The input with other values than in the declared set."""
    increment: int = 0
    """The number that is added to the integers of that input; PyTorch may reject the sum."""
    factor: float = 1.0
    """The factor for the declared values of that input, instead of a perturbation."""
    seed: int = 0
    """The number that is added to the seed of the model."""
    special: Special | None = None
    """Special values of all inputs, instead of other values of one input."""
    numbers: tuple[float, ...] = ()
    """The numbers of the model whose multiples are special values."""
    is_padded: bool = False
    """Whether all rows of that input except the first are padded on the right."""


def choose_usual_sets(spec: ModelSpec) -> tuple[InputSet, ...]:
    """Return the input sets of every proof, the declared one first."""
    axes = spec.free_axes
    declared = {axis.name: axis.example for axis in spec.axes if axis.example is not None}
    sets = [InputSet(name="declared", kind="declared", sizes=declared)]
    is_large = count_elements(spec, declared) > _LARGE
    if spec.inputs_from is None or spec.inputs_from.takes_sizes:
        for axis in axes:
            allows = _limit_sizes(spec, axis, declared)
            probes = choose_probes(axis, is_large=is_large, allows=allows)
            for size in probes:
                sizes = spec.complete_sizes({**declared, axis.name: size})
                sets.append(InputSet(name=f"{axis.name}={size}", kind="axis", sizes=sizes))
        for axis, sizes in list_largest_sizes(spec, [each.sizes for each in sets]):
            if is_affordable(spec, axis, sizes):
                sets.append(create_size_set(spec, sizes))
        joint = _choose_joint_sizes(spec, declared, is_large=is_large)
        if len(axes) > 1 and joint != declared:
            sets.append(create_size_set(spec, joint))
        combinations = choose_combinations(spec, declared, [each.sizes for each in sets])
        sets.extend(create_size_set(spec, sizes) for sizes in combinations)
    for case in spec.cases:
        sizes = spec.complete_sizes({**declared, **case.axes})
        sets.append(InputSet(name=case.name, kind="case", sizes=sizes, case=case))
    masks = {output.masked_by for output in spec.outputs}
    for item in spec.inputs:
        other = InputSet(
            name=f"other {item.name}", kind="values", sizes=declared, changed_input=item.name
        )
        sets.append(other)
        if not item.fill.is_random and "int" in item.dtype and item.name not in masks:
            # Fewer loop iterations may not change the output, so try two more.
            sets.append(replace(other, name=f"larger {item.name}", increment=2))
    special = _choose_special_values(spec, sets, declared, is_large=is_large)
    return (*sets, *_pad_masks(spec, sets, declared), *special)


def _choose_special_values(
    spec: ModelSpec, sets: Sequence[InputSet], declared: Mapping[str, int], *, is_large: bool
) -> Iterator[InputSet]:
    """Yield sets with special values of all random inputs.

    The ends of all ranges are one set, or one for each end if an input has no room for both. If a
    run is slow, equal and rising values have the cheapest of the usual sizes.
    """
    inputs = [item for item in spec.inputs if item.fill.kind in (*_NUMBERS, *_MASKS)]
    if not inputs:
        return
    has_room = all(
        item.fill.kind in _MASKS[1:]
        or (item.fill.kind != "bernoulli" and count_shape(item.shape, declared) > 1)
        for item in inputs
    )
    numbers = [item for item in inputs if item.fill.kind in _NUMBERS]
    cheapest = declared
    if is_large:
        cheapest = min((each.sizes for each in sets), key=lambda each: count_elements(spec, each))
    kinds: list[tuple[str, Special]] = [("special", "ends")]
    if not has_room:
        kinds = [("highest", "highest"), ("lowest", "lowest")]
    rows = [(*kind, inputs, declared) for kind in kinds]
    if numbers:
        rows += [("equal", "constant", numbers, cheapest), ("rising", "rising", numbers, cheapest)]
    for word, special, items, sizes in rows:
        name = f"{word} values of {', '.join(item.name for item in items)}"
        yield InputSet(name=name, kind="values", sizes=sizes, special=special)


def _pad_masks(
    spec: ModelSpec, sets: Sequence[InputSet], declared: Mapping[str, int]
) -> Iterator[InputSet]:
    """Yield a set with short rows for each possible mask, at the longest affordable sizes.

    A model may look at a window of its rows. In a window of padding, no element is allowed.
    """
    sizes_of_sets = [each.sizes for each in sets if each.kind == "axis"]
    for item in spec.inputs:
        is_mask = item.fill.kind == "ones" and len(item.shape) > 1 and "float" not in item.dtype
        if not is_mask or not isinstance(item.shape[-1], str):
            continue
        row = item.shape[-1]
        fits = [
            sizes
            for sizes in (declared, *sizes_of_sets)
            if count_elements(spec, sizes) <= _LARGE and count_shape(item.shape[:-1], sizes) > 1
        ]
        if fits:
            sizes = max(fits, key=lambda each: each[row])
            yield InputSet(
                name=f"padded {item.name}",
                kind="values",
                sizes=sizes,
                changed_input=item.name,
                is_padded=True,
            )


def create_size_set(spec: ModelSpec, sizes: Mapping[str, int]) -> InputSet:
    """Return an input set that is named by the sizes of all free axes."""
    name = " ".join(f"{axis.name}={sizes[axis.name]}" for axis in spec.free_axes)
    return InputSet(name=name, kind="axis", sizes=sizes)


def create_draw_set(spec: ModelSpec, seed: int, sizes: Sizes = MappingProxyType({})) -> InputSet:
    """Return a set with another seed of all random inputs, by default with the declared sizes."""
    declared = {axis.name: axis.example for axis in spec.axes if axis.example is not None}
    complete = declared | dict(sizes)
    suffix = "" if complete == declared else f" at {create_size_set(spec, complete).name}"
    return InputSet(name=f"draw {seed + 1}{suffix}", kind="values", sizes=complete, seed=seed)


def create_multiples_set(spec: ModelSpec, numbers: Sequence[float]) -> InputSet:
    name = "multiples of " + " ".join(map(repr, numbers))
    declared = create_draw_set(spec, 0)
    return replace(declared, name=name, special="multiples", numbers=tuple(numbers))


def choose_probes(
    axis: Axis, *, is_large: bool = False, allows: Allows | None = None
) -> tuple[int, ...]:
    """Return the sizes that prove one axis: a distant one and the smallest.

    Exporters specialize for the size 1, and users run models with it most often.

    `allows`: Returns whether a size is allowed; by default the limits of the axis decide.
    """
    allows = allows or axis.allows
    example = axis.example or 0
    first = 0 if axis.min == 0 else 1
    multiples = (n * axis.multiple_of for n in count(first))
    smallest = next(_filter_allowed(multiples, axis, allows), None)
    distant = find_distant_size(axis, avoid=(example,), is_large=is_large, allows=allows)
    sizes = dict.fromkeys((distant, smallest))
    return tuple(size for size in sizes if size is not None and size != example)


def complete_smallest(spec: ModelSpec, sizes: Sizes) -> dict[str, int]:
    """Return the sizes of all axes; free axes without a given size have their smallest one."""
    smallest = {axis.name: axis.smallest or axis.multiple_of for axis in spec.free_axes}
    return spec.complete_sizes({**smallest, **sizes})


def list_largest_sizes(
    spec: ModelSpec, known: Sequence[Sizes]
) -> Iterator[tuple[Axis, dict[str, int]]]:
    """Yield sizes with the largest promised one of each axis, because a table may be shorter.

    The other axes have their smallest size, or the declared one if the contract forbids that.

    `known`: The sizes of existing samples, the declared ones first.
    """
    for axis in spec.free_axes:
        if axis.max is None:
            continue
        largest = {axis.name: axis.max - axis.max % axis.multiple_of}
        proposed = (
            complete_smallest(spec, largest),
            spec.complete_sizes({**known[0], **largest}),
        )
        sizes = next(filter(spec.allows_sizes, proposed), None)
        if sizes and all(each.get(axis.name) != largest[axis.name] for each in known):
            yield axis, sizes


def is_affordable(spec: ModelSpec, axis: Axis, sizes: Sizes, *, room: int = 1) -> bool:
    """Return True if a run with a longer axis fits into memory.

    Attention grows with the square of a size. So the limit leaves room for the largest tensor
    of the contract to grow once more by the same factor.

    `room`: The multiple of the usual memory that is acceptable.
    """
    growth = sizes[axis.name] / (axis.example or 1)
    return count_elements(spec, sizes) * growth <= room * MOST_ELEMENTS


def find_distant_size(
    axis: Axis, *, avoid: Sequence[int], is_large: bool = False, allows: Allows | None = None
) -> int | None:
    """Return a size well above `avoid` and coprime to it in units of `multiple_of`.

    If the range is too narrow, it is the best other size, or None.

    `is_large`: Whether a run is slow; then the size is above `avoid` by half.
    `allows`: Returns whether a size is allowed; by default the limits of the axis decide.
    """
    allows = allows or axis.allows
    unit = axis.multiple_of
    largest = max(avoid)
    # Double a small size; add a quarter to a large one, such as the width of an image.
    target = largest + (largest + 1 if largest <= 32 * unit else largest // 4 + 1)
    if is_large:
        target = min(target, largest + largest // 2 + 1)
    candidates = _filter_allowed((n * unit for n in count(-(-target // unit))), axis, allows)
    if size := next((size for size in candidates if _is_coprime(size, avoid, unit)), None):
        return size
    # The range ends before that: search it from its end, and prefer coprime sizes.
    end = min(axis.max or target, target)
    below = [size for size in range(end - end % unit, axis.min - 1, -unit) if size > 0]
    others = [size for size in below[:_SEARCH] if size not in avoid and allows(size)]
    coprime = (size for size in others if size > unit and _is_coprime(size, avoid, unit))
    return next(coprime, others[0] if others else None)


def _is_coprime(size: int, others: Iterable[int], unit: int) -> bool:
    return all(gcd(size // unit, max(other // unit, 1)) == 1 for other in others)


def _limit_sizes(spec: ModelSpec, axis: Axis, sizes: Mapping[str, int]) -> Allows:
    """Return a function: whether the contract allows a size if all others are `sizes`."""

    def allows(size: int) -> bool:
        return axis.allows(size) and spec.allows_sizes({**sizes, axis.name: size})

    return allows if spec.size_rules else axis.allows


def _choose_joint_sizes(
    spec: ModelSpec, declared: Mapping[str, int], *, is_large: bool
) -> dict[str, int]:
    """Return another size for every axis at once, all different if their ranges allow it."""
    chosen: dict[str, int] = {}
    for axis in spec.free_axes:
        example, unit = declared[axis.name], axis.multiple_of
        allows = _limit_sizes(spec, axis, {**declared, **chosen})
        size = find_distant_size(axis, avoid=(example,), is_large=is_large, allows=allows)
        if size:
            used = (example, *chosen.values())
            rising = (n * unit for n in count(size // unit + 1))
            larger = _filter_allowed(rising, axis, allows)
            size = next((other for other in larger if _is_coprime(other, used, unit)), size)
        chosen[axis.name] = size or example
    return spec.complete_sizes(chosen)


def _filter_allowed(sizes: Iterable[int], axis: Axis, allows: Allows) -> Iterator[int]:
    """Yield the sizes, in rising order, that the contract allows, up to the end of its range."""
    for tried, size in enumerate(sizes):
        if tried > _SEARCH or (axis.max is not None and size > axis.max):
            return
        if allows(size):
            yield size


def list_sweep(
    spec: ModelSpec, known: Sequence[Sizes], last: int = _LAST_OF_LONG_SWEEP, weights: int = 0
) -> Iterator[InputSet]:
    """Yield sets that give each free axis each promised size up to the last, while runs are cheap.

    All axes change at once, unless a tensor is too large or the contract forbids it. Then the other
    axes have their smallest size.

    `known`: The sizes of existing samples, the declared ones first.
    `weights`: The number of the model's weights, if they limit the number of runs.
    """
    if spec.inputs_from is not None and not spec.inputs_from.takes_sizes:
        return
    columns: dict[str, list[int]] = {}
    for axis in spec.free_axes:
        seen = {sizes.get(axis.name) for sizes in known}
        sizes = range(0, last * axis.multiple_of + 1, axis.multiple_of)
        columns[axis.name] = [each for each in sizes if axis.allows(each) and each not in seen]
    columns = {name: column for name, column in columns.items() if column}
    done: list[Sizes] = []
    budget = float(SWEEP_RUNS)
    for row in range(max(map(len, columns.values()), default=0)):
        together = {
            name: column[(row + shift * len(column) // 3) % len(column)]
            for shift, (name, column) in enumerate(columns.items())
        }
        alone = [complete_smallest(spec, {name: size}) for name, size in together.items()]
        for group in ([spec.complete_sizes({**known[0], **together})], alone):
            fits = [
                each
                for each in group
                if spec.allows_sizes(each) and count_elements(spec, each) <= _SMALL
            ]
            new = [each for each in fits if each not in done]
            for each in new:
                budget -= measure_run(spec, each, weights) if weights else 0
                if budget >= 0:
                    yield create_size_set(spec, each)
            done += new
            if fits:
                break


def measure_run(spec: ModelSpec, sizes: Sizes, weights: int) -> float:
    """Return about how many milliseconds a run takes, by its elements and weights.

    A measured time would change the samples if the machine is busy.
    """
    return count_elements(spec, sizes) / _SMALL + weights / _FEW_WEIGHTS


def select_inputs_function(spec: ModelSpec, chosen: InputSet) -> InputsFrom | None:
    """Return the function for an input set, or None if the manifest declares the call."""
    by_case = chosen.case.inputs_from if chosen.case else None
    return by_case or spec.inputs_from
