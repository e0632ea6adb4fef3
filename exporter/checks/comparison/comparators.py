"""The comparators that replace the tolerance of an output; a reproducer contains this file.

They need numpy only, and return the problem, the error as a multiple of its bound, and figures.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

#: A row of smaller candidates is matched in less than a second.
MAX_ROWS = 4096
#: A smaller share of the largest value is 0 in 8 bits.
_STEPS = 254


class Outcome(NamedTuple):
    """The result of one comparator."""

    problem: str
    """The end of a sentence that starts with `output 'name': `; "" if the output passes."""
    ratio: float
    """The error as a multiple of its bound."""
    figures: dict[str, float | str]


def compare_cosine(actual: Array, expected: Array, least: float, usual: float = 0.0) -> Outcome:
    """Compare the direction and the length of the output and of each row along its first axis.

    The loss of a row is 1 - cosine. A row that is smaller than usual may instead have an error
    that would be the same loss in a usual row, and it is all zeros only if 8 bits for the range of
    PyTorch's output cannot hold its values. An error of the length by the share e is a loss of
    e * e / 2, so an output with another scale does not pass.

    `usual`: The mean square of PyTorch's output for the declared inputs.
    """
    rows, target = _split_rows(actual), _split_rows(expected)
    usual = max(usual, float(np.square(target).mean())) if target.size else 0.0
    total = _measure_loss(rows.reshape(1, -1), target.reshape(1, -1), usual)
    of_rows = np.maximum(_measure_loss(rows, target, usual), _find_lost_rows(rows, target))
    losses = np.append(of_rows, total)
    worst = int(np.argmax(losses))
    loss = float(losses[worst])
    ratio = math.sqrt(loss / (1 - least))
    figures: dict[str, float | str] = {"cosine": 1 - loss}
    if ratio <= 1:
        return Outcome("", ratio, figures)
    location = "" if worst == len(rows) else f" in row {worst} of the first axis"
    problem = f"cosine {1 - loss:.6g}{location}, at least {least:g} is promised"
    pair = (rows[worst], target[worst]) if worst < len(rows) else (rows, target)
    lengths = [float(np.sqrt(np.square(each).sum())) for each in pair]
    length = f"the length is {lengths[0]:.4g}, PyTorch's {lengths[1]:.4g}"
    return Outcome(f"{problem}; {length}", ratio, figures)


def _find_lost_rows(rows: Array, target: Array) -> Array:
    """Return 1 for each row of zeros in place of values that 8 bits can hold, else 0."""
    if not rows.size:
        return np.zeros(len(rows))
    largest = np.abs(target).max(axis=1)
    is_zero = ~rows.any(axis=1)
    return np.where(is_zero & (largest > largest.max() / _STEPS), 1.0, 0.0)


def _measure_loss(rows: Array, target: Array, usual: float) -> Array:
    """Return the larger loss of each row, of its direction and of its length."""
    if not rows.size:
        return np.zeros(len(rows))
    power, expected = np.square(rows).mean(axis=1), np.square(target).mean(axis=1)
    error = np.square(rows - target).mean(axis=1)
    with np.errstate(all="ignore"):
        cosine = (rows * target).mean(axis=1) / np.sqrt(power * expected)
        direction = np.where(power * expected > 0, np.maximum(1 - cosine, 0.0), 1.0)
        if usual:
            direction = np.minimum(direction, error / (2 * usual))
        size = np.maximum(expected, usual)
        length = np.square(np.sqrt(power) - np.sqrt(expected)) / (2 * size)
    loss = np.where(size > 0, np.maximum(direction, length), np.where(power > 0, np.inf, 0.0))
    return np.where(error > 0, loss, 0.0)


def compare_sqnr(actual: Array, expected: Array, least: float, usual: float = 0.0) -> Outcome:
    """Compare the noise of each row along the first axis with the usual signal, in dB.

    The signal is that of the output, or a larger one of the declared inputs: the noise of a
    quantized file does not become smaller with its inputs. See `compare_cosine` for the arguments.
    """
    rows, target = _split_rows(actual), _split_rows(expected)
    if not rows.size:
        return Outcome("", 0.0, {})
    signal = max(usual, float(np.square(target).mean()))
    noise = np.square(rows - target).mean(axis=1)
    worst = int(np.argmax(noise))
    if not noise[worst]:
        return Outcome("", 0.0, {})
    if not signal:
        return Outcome("PyTorch's output has no signal, the file has noise", np.inf, {})
    ratio_db = float(10 * np.log10(signal / noise[worst]))
    ratio = 10 ** ((least - ratio_db) / 20)
    figures: dict[str, float | str] = {"sqnr_db": ratio_db}
    if ratio <= 1:
        return Outcome("", ratio, figures)
    location = f" in row {worst} of the first axis" if len(rows) > 1 else ""
    total = float(10 * np.log10(signal / noise.mean()))
    problem = (
        f"{ratio_db:.1f} dB of signal to noise{location} ({total:.1f} dB in total), "
        f"at least {least:g} dB are promised"
    )
    return Outcome(problem, ratio, figures)


def compare_top_k(actual: Array, expected: Array, count: int, allowed: float = 0.0) -> Outcome:
    """Compare the positions of the largest values in each row along the last axis.

    A position that PyTorch does not select is right if its value there is nearly selected: it is
    lower by no more than `allowed`.
    """
    width = expected.shape[-1] if expected.ndim else 0
    if count >= width or not expected.size:
        return Outcome("", 0.0, {})  # the check `power` reports that this compares nothing
    lowest_number = np.finfo(np.float64).min
    rows, target = (
        np.nan_to_num(np.asarray(each, np.float64), nan=lowest_number).reshape(-1, width)
        for each in (actual, expected)
    )
    chosen = np.argpartition(-rows, count - 1, axis=1)[:, :count]
    order = np.sort(target, axis=1)
    lowest, next_lower = order[:, -count], order[:, -count - 1]
    picked = np.take_along_axis(target, chosen, axis=1).min(axis=1)
    with np.errstate(all="ignore"):
        short = np.where(picked == lowest, 0.0, lowest - picked)
        right = np.argpartition(-target, count - 1, axis=1)[:, :count]
        others = rows.copy()
        np.put_along_axis(others, right, lowest_number, axis=1)
        gap = np.take_along_axis(rows, right, axis=1).min(axis=1) - others.max(axis=1)
        distance = lowest - next_lower
        used = np.where(distance > allowed, 1 - gap / distance, 0.0)
    wrong = ~(short <= allowed)
    # How much of the distance to the next value is used up: 1 selects another position.
    ratio = float(np.nan_to_num(used, posinf=1.0, neginf=0.0).max(initial=0.0))
    share = float(1 - wrong.mean())
    figures: dict[str, float | str] = {"top_k": share}
    if not wrong.any():
        return Outcome("", min(max(ratio, 0.0), 1.0), figures)
    index = int(np.argmax(np.where(wrong, short, -np.inf)))
    problem = (
        f"the positions of the {count} largest values differ in {int(wrong.sum())} of {len(rows)} "
        f"rows, most in row {index}: a selected value is {short[index]:.3g} lower in PyTorch"
    )
    return Outcome(problem, np.inf, figures)


def compare_by_function(function: Any, name: str, actual: Array, expected: Array) -> Outcome:
    """Compare by a function of the user, which returns an error and its bound."""
    try:
        result = function(actual.copy(), expected.copy())
    except Exception as failure:  # noqa: BLE001 - any exception of the user's code is a problem
        return Outcome(f"{name} raises {type(failure).__name__}: {failure}", np.inf, {})
    form = "expected two numbers, an error and its bound"
    if not isinstance(result, tuple | list) or len(result) != 2:
        return Outcome(f"{name} returns a {type(result).__name__}; {form}", np.inf, {})
    try:
        error, bound = (float(each) for each in result)
    except (TypeError, ValueError):
        return Outcome(f"{name} returns {result!r}; {form}", np.inf, {})
    if math.isnan(error) or not 0 <= bound < math.inf:
        return Outcome(f"{name} returns the error {error:g}, the bound {bound:g}", np.inf, {})
    ratio = error / bound if bound else (math.inf if error > 0 else 0.0)
    if error <= bound:
        return Outcome("", max(ratio, 0.0), {})
    return Outcome(f"error {error:.4g} of {name}, the bound is {bound:.4g}", ratio, {})


def match_rows(costs: Array) -> Array:
    """Return for each row of PyTorch the row of the file that belongs to it.

    As many pairs as possible are within the bound; of the others, the nearest.

    `costs`: The error of each row of the file for each row of PyTorch, in multiples of the bound.
    """
    owners: dict[int, int] = {}
    candidates = [list(np.flatnonzero(row <= 1)[np.argsort(row[row <= 1])]) for row in costs]
    for start in range(len(costs)):
        _extend_matching(start, candidates, owners)
    order = np.full(len(costs), -1)
    for target, row in owners.items():
        order[target] = row
    free_rows = [row for row in range(len(costs)) if row not in set(owners.values())]
    free = [target for target in range(len(costs)) if order[target] < 0]
    rest = np.nan_to_num(costs[np.ix_(free_rows, free)], nan=np.inf, posinf=1e300)
    while free:
        i, j = np.unravel_index(int(np.argmin(rest)), rest.shape)
        order[free.pop(int(j))] = free_rows.pop(int(i))
        rest = np.delete(np.delete(rest, i, axis=0), j, axis=1)
    return order


def _extend_matching(start: int, candidates: list[list[int]], owners: dict[int, int]) -> None:
    """Find a partner for one row; other rows change theirs if that makes room."""
    came_from: dict[int, int] = {}
    queue = [start]
    while queue:
        row = queue.pop(0)
        for target in candidates[row]:
            if target in came_from:
                continue
            came_from[target] = row
            if target in owners:
                queue.append(owners[target])
                continue
            partners = {owner: owned for owned, owner in owners.items()}
            current: int | None = target
            while current is not None:
                owner = came_from[current]
                owners[current], current = owner, partners.get(owner)
            return


def measure_row_costs(actual: Array, target: Array, allowed: Array | None) -> Array:
    """Return the largest error between all pairs of rows, as a multiple of the bound.

    `allowed`: The allowed error of each element of `target`; None if values must be equal.
    """
    rows, others = actual.reshape(len(actual), -1), target.reshape(len(target), -1)
    costs = np.zeros((len(rows), len(others)))
    bounds = None if allowed is None else allowed.reshape(others.shape)
    with np.errstate(all="ignore"):
        for column in range(rows.shape[1]):
            one, other = rows[:, column, None], others[None, :, column]
            same = (one == other) | (np.isnan(one) & np.isnan(other))
            error = np.full(costs.shape, np.inf)
            if bounds is not None:
                error = np.abs(one.astype(np.float64) - other) / bounds[None, :, column]
            costs = np.maximum(costs, np.where(same, 0.0, np.nan_to_num(error, nan=np.inf)))
    return costs


def _split_rows(array: Array) -> Array:
    """Return rows along the first axis in float64, without NaN and Inf, which are equal."""
    values = np.asarray(array, np.float64)
    values = np.where(np.isfinite(values), values, 0.0)
    has_rows = values.ndim > 1 and values.size > 0
    return values.reshape(len(values), -1) if has_rows else values.reshape(1, -1)
