"""Mutators of stored numbers: one element, a channel, a whole tensor, or two in each other's place.

In: a `Draft`. Out: the draft with one tensor changed, and the change in one line; an empty line
where there was no place for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from exporter.tools.audit.child.mutators.draft import (
    FLOATS,
    INTEGERS,
    Array,
    Draft,
)

#: A change of a whole tensor is written out; beyond this many elements only parts are changed.
_LARGEST = 1 << 22


def _is_changed(old: Array, new: Array) -> bool:
    return bool(np.any(old != new))


def element(draft: Draft, how: str, change: Callable[[Array], Array]) -> str:
    """Changes one element of one weight.

    Args:
        draft: The model.
        how: What `change` does, for the line: `times 1.001`.
        change: From the old values to the new ones.
    """
    tensors = draft.tensors(FLOATS)
    if not tensors:
        return ""
    tensor = draft.rng.choice(tensors)
    index = draft.rng.randrange(math.prod(tensor.dims))
    old = draft.read(tensor, index, 1)
    new = change(old.astype(np.float64)).astype(old.dtype)
    if not _is_changed(old, new):
        return ""
    draft.write(tensor, index, new)
    place = np.unravel_index(index, tuple(tensor.dims) or (1,))
    draft.rows = (int(place[0]),)
    return f"{tensor.name}{[int(i) for i in place]} {how}"


def slightly(draft: Draft) -> str:
    """One element a thousandth larger."""
    return element(draft, "times 1.001", lambda old: old * 1.001)


def tenth(draft: Draft) -> str:
    """One element a tenth larger."""
    return element(draft, "times 1.1", lambda old: old * 1.1)


def flipped(draft: Draft) -> str:
    """One element with the other sign."""
    return element(draft, "with the other sign", lambda old: -old)


def zeroed(draft: Draft) -> str:
    """One element gone."""
    return element(draft, "set to 0", lambda old: old * 0)


def channel(draft: Draft) -> str:
    """Everything at one index of the first axis a tenth larger."""
    tensors = [t for t in draft.tensors(FLOATS, least=2) if len(t.dims) > 1]
    if not tensors:
        return ""
    tensor = draft.rng.choice(tensors)
    row, size = draft.rng.randrange(tensor.dims[0]), math.prod(tensor.dims[1:])
    old = draft.read(tensor, row * size, size)
    new = (old.astype(np.float64) * 1.1).astype(old.dtype)
    if not _is_changed(old, new):
        return ""
    draft.write(tensor, row * size, new)
    draft.rows = (row,)
    return f"{tensor.name}[{row}] times 1.1"


def whole(draft: Draft) -> str:
    """A whole tensor a thousandth larger."""
    tensors = [t for t in draft.tensors(FLOATS, least=2) if math.prod(t.dims) <= _LARGEST]
    if not tensors:
        return ""
    tensor = draft.rng.choice(tensors)
    old = draft.read(tensor)
    new = (old.astype(np.float64) * 1.001).astype(old.dtype)
    if not _is_changed(old, new):
        return ""
    draft.write(tensor, 0, new)
    return f"{tensor.name} times 1.001"


def elements_swapped(draft: Draft) -> str:
    """Two elements of a weight in each other's place."""
    return _swapped(draft, lambda tensor: (math.prod(tensor.dims), 1))


def rows_swapped(draft: Draft) -> str:
    """Two rows of a weight in each other's place."""
    return _swapped(
        draft,
        lambda tensor: (
            (tensor.dims[0], math.prod(tensor.dims[1:])) if len(tensor.dims) > 1 else (0, 0)
        ),
    )


def _swapped(draft: Draft, parts: Callable[[TensorProto], tuple[int, int]]) -> str:
    tensors = [t for t in draft.tensors(FLOATS, least=2) if parts(t)[0] > 1]
    if not tensors:
        return ""
    tensor = draft.rng.choice(tensors)
    count, size = parts(tensor)
    one, other = sorted(draft.rng.sample(range(count), 2))
    first, second = draft.read(tensor, one * size, size), draft.read(tensor, other * size, size)
    if not _is_changed(first, second):
        return ""
    draft.write(tensor, one * size, second)
    draft.write(tensor, other * size, first)
    # Of single elements, the row is what the first axis says.
    per_row = math.prod(tensor.dims[1:]) // size
    draft.rows = (one // max(per_row, 1), other // max(per_row, 1))
    what = "elements" if size == 1 else "rows"
    return f"{tensor.name}: {what} {one} and {other} swapped"


def integer(draft: Draft) -> str:
    """One element of a stored shape, index or count off by one."""
    tensors = draft.tensors(INTEGERS)
    if not tensors:
        return ""
    tensor = draft.rng.choice(tensors)
    index, by = draft.rng.randrange(math.prod(tensor.dims)), draft.rng.choice((-1, 1))
    old = draft.read(tensor, index, 1)
    if abs(int(old[0])) >= np.iinfo(np.int32).max:  # "to the end": by one or not is the same
        return ""
    draft.write(tensor, index, old + by)
    return f"{tensor.name}: element {index} from {old[0]} to {old[0] + by}"


WEIGHTS = (
    slightly,
    tenth,
    flipped,
    zeroed,
    channel,
    whole,
    elements_swapped,
    rows_swapped,
    integer,
)
