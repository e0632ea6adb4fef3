"""The inputs of a failing sample in words: `mask: 3 of 8 elements are 0`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exporter.runtimes.values import Array


def describe_inputs(inputs: Mapping[str, Array], changed_input: str = "") -> str:
    """Return the integers and booleans of a sample in words.

    Args:
        inputs: The arrays by name.
        changed_input: The only input with other values than in the declared sample. Without it,
            the result has every input of zeros and ones.
    """
    if changed_input:
        array = inputs.get(changed_input)
        text = "" if array is None else _describe_values(array)
        return f"{changed_input}: {text}" if text else ""
    texts = [
        f"{name}: {_describe_values(array)}" for name, array in inputs.items() if _is_mixed(array)
    ]
    return ", ".join(texts)


def _is_exact(array: Array) -> bool:
    return array.dtype.kind in "biu" and array.size > 0


def _is_mixed(array: Array) -> bool:
    return _is_exact(array) and np.array_equal(np.unique(array), [0, 1])


def _describe_values(array: Array) -> str:
    if not _is_exact(array):
        return ""
    first = array.flat[0]
    if array.size == 1:
        return str(first)
    if (array == first).all():
        return f"all {first}"
    if not _is_mixed(array):
        return ""
    zero = array.dtype.type(0)
    count = f"{int((array == zero).sum())} of {array.size} elements are {zero}"
    rows = (array == zero).all(axis=-1)
    if array.ndim > 1 and rows.any():
        return f"{count}, {int(rows.sum())} of {rows.size} rows have no other value"
    return count
