"""Mutators of stored numbers: one element, a row, a whole tensor, or two exchanged parts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from benchmarks.audit.mutators.draft import (
    FLOATS,
    INTEGERS,
    Array,
    Draft,
)

#: The most elements of a tensor that is changed as a whole.
_MAX_ELEMENTS = 1 << 22


def _is_changed(old: Array, new: Array) -> bool:
    return bool(np.any(old != new))


def change_element(draft: Draft, how: str, change: Callable[[Array], Array]) -> str:
    """Change one element of one weight.

    Args:
        draft: The model.
        how: A description of `change`: `times 1.001`.
        change: Computes the new values from the old ones.
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
    position = np.unravel_index(index, tuple(tensor.dims) or (1,))
    draft.rows = (int(position[0]),)
    return f"{tensor.name}{[int(i) for i in position]} {how}"


def scale_element_slightly(draft: Draft) -> str:
    """Multiply one element by 1.001."""
    return change_element(draft, "times 1.001", lambda old: old * 1.001)


def scale_element(draft: Draft) -> str:
    """Multiply one element by 1.1."""
    return change_element(draft, "times 1.1", lambda old: old * 1.1)


def negate_element(draft: Draft) -> str:
    """Negate one element."""
    return change_element(draft, "with the other sign", lambda old: -old)


def clear_element(draft: Draft) -> str:
    """Set one element to 0."""
    return change_element(draft, "set to 0", lambda old: old * 0)


def scale_row(draft: Draft) -> str:
    """Multiply the elements at one index of the first axis by 1.1."""
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


def scale_tensor(draft: Draft) -> str:
    """Multiply a whole tensor by 1.001."""
    tensors = [t for t in draft.tensors(FLOATS, least=2) if math.prod(t.dims) <= _MAX_ELEMENTS]
    if not tensors:
        return ""
    tensor = draft.rng.choice(tensors)
    old = draft.read(tensor)
    new = (old.astype(np.float64) * 1.001).astype(old.dtype)
    if not _is_changed(old, new):
        return ""
    draft.write(tensor, 0, new)
    return f"{tensor.name} times 1.001"


def swap_elements(draft: Draft) -> str:
    """Exchange two elements of a weight."""
    return _swap_parts(draft, lambda tensor: (math.prod(tensor.dims), 1))


def swap_rows(draft: Draft) -> str:
    """Exchange two rows of a weight."""
    return _swap_parts(
        draft,
        lambda tensor: (
            (tensor.dims[0], math.prod(tensor.dims[1:])) if len(tensor.dims) > 1 else (0, 0)
        ),
    )


def _swap_parts(draft: Draft, parts: Callable[[TensorProto], tuple[int, int]]) -> str:
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
    # The row is the index along the first axis.
    per_row = math.prod(tensor.dims[1:]) // size
    draft.rows = (one // max(per_row, 1), other // max(per_row, 1))
    unit = "elements" if size == 1 else "rows"
    return f"{tensor.name}: {unit} {one} and {other} swapped"


def change_stored_integer(draft: Draft) -> str:
    """Change one element of a stored shape, index or count by one."""
    tensors = draft.tensors(INTEGERS)
    if not tensors:
        return ""
    tensor = draft.rng.choice(tensors)
    index, by = draft.rng.randrange(math.prod(tensor.dims)), draft.rng.choice((-1, 1))
    old = draft.read(tensor, index, 1)
    if abs(int(old[0])) >= np.iinfo(np.int32).max:  # "to the end": one less has no effect
        return ""
    draft.write(tensor, index, old + by)
    return f"{tensor.name}: element {index} from {old[0]} to {old[0] + by}"


WEIGHTS = (
    scale_element_slightly,
    scale_element,
    negate_element,
    clear_element,
    scale_row,
    scale_tensor,
    swap_elements,
    swap_rows,
    change_stored_integer,
)
