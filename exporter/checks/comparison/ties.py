"""The comparison of indices that select among equal values, such as those of `topk`.

An index is right if it selects PyTorch's value within rounding. If PyTorch promises the first of
equal values and computes them without an error, only that index is right. No index may repeat in
a row unless PyTorch repeats it.
"""

from __future__ import annotations

import numpy as np

from exporter.checks.files.sample_files import SelectionData
from exporter.runtimes.values import Array

#: Units in the last place of two values that were rounded on their own.
_UNITS = 16 * 2.0**-23


def are_ties(actual: Array, expected: Array, selection: SelectionData) -> bool:
    """Return True if all indices that differ select values that are equal within rounding."""
    keys, rows, exact = selection.keys, selection.rows, selection.exact
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    differ = actual != expected
    columns = keys.shape[1]
    if ((actual < 0) | (actual >= columns)).any() or rows.shape != actual.shape:
        return False
    pairs, expected_pairs = rows * columns + actual, rows * columns + expected
    if len(np.unique(pairs)) != len(np.unique(expected_pairs)):
        return False
    chosen, right = keys.flat[pairs[differ]], keys.flat[expected_pairs[differ]]
    are_exact = exact.flat[pairs[differ]] & exact.flat[expected_pairs[differ]]
    are_equal = chosen == right
    with np.errstate(all="ignore"):
        allowed = np.maximum(selection.margin, _UNITS * np.maximum(abs(chosen), abs(right)))
        are_near = np.abs(chosen - right) <= allowed
    promised = not selection.is_first_promised
    is_tie = np.where(are_exact, are_equal & promised, are_equal | are_near)
    return bool(is_tie.all())
