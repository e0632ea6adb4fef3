"""Search the mistake that makes a caller of a right file differ from PyTorch.

The first thing that differs is the reason: an input of the file, its outputs, or what becomes of
them. Known mistakes are tried: the one that makes the values equal is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from exporter.worker.callers.results import Array, Values, name_value

#: Two arrays are equal if they differ by less, as a share of the scale.
_EQUAL = 1e-3
#: A correlation of two pictures from which they show the same.
_SIMILAR = 0.6
#: The most axes whose orders are tried, and the sizes of an axis of channels.
_MOST_AXES = 5
_CHANNELS = range(2, 5)
_BYTE = 255.0


@dataclass(frozen=True, slots=True)
class Call:
    """One run of the file, or one call of the model."""

    inputs: Values
    outputs: Values
    """Empty if the runtime rejected the inputs."""
    line: str = ""
    """The line of the caller, if it is known."""


def explain_difference(
    runs: Sequence[Call], calls: Sequence[Call], actual: Values, expected: Values
) -> str:
    """Return the first thing that differs and the mistake, or "" if nothing is known.

    Args:
        runs: The runs of the file by the caller; none if its runtime was not observed.
        calls: The calls of the model by PyTorch's program.
        actual: The caller's result, empty if it failed.
        expected: PyTorch's result.
    """
    for run, call in zip(runs, calls, strict=False):
        at = f" at {run.line}" if run.line else ""
        for name, reference in call.inputs.items():
            if name not in run.inputs:
                return f"the input '{name}' is not fed{at}"
            value = run.inputs[name]
            if not _are_equal(value, reference) or (not run.outputs and _differ(value, reference)):
                reason = explain_input(value, reference)
                return f"the input '{name}'{at}: {reason}"
        if not run.outputs:
            return f"the runtime rejects the inputs{at}"
        for name, reference in call.outputs.items():
            if name in run.outputs and not _are_equal(run.outputs[name], reference):
                return (
                    f"the inputs are equal, and the output '{name}'{at} differs: another "
                    "setting of the session"
                )
    if runs and len(runs) != len(calls):
        return f"it runs the file {len(runs)} times, and PyTorch the model {len(calls)} times"
    # A file that passes its checks has the outputs of PyTorch.
    known = runs or calls
    inputs = {name: array for call in known for name, array in call.inputs.items()}
    outputs = {name: array for call in known for name, array in call.outputs.items()}
    reason = _explain_result(inputs, outputs, actual, expected)
    if runs:
        rest = reason or "the code after its run differs"
        return f"inputs and outputs of the file are equal, and {rest}"
    return reason


def _differ(value: Array, reference: Array) -> bool:
    return value.dtype != reference.dtype or value.shape != reference.shape


def explain_input(value: Array, reference: Array) -> str:
    """Return how an array that a caller feeds differs from PyTorch's."""
    if value.dtype.kind in "US" or reference.dtype.kind in "US":
        return "text"
    if reason := find_mistake(value, reference):
        return reason
    if value.shape == reference.shape and _are_equal(value, reference):
        return f"its dtype is {value.dtype}, and not {reference.dtype}"
    if value.ndim == reference.ndim >= 3 and value.shape == reference.shape:
        share = _correlate(value, reference)
        if share > _SIMILAR:
            return f"the same picture by another resize, crop or interpolation ({share:.1%} alike)"
    if value.shape != reference.shape:
        return f"its shape is {list(value.shape)}, and not {list(reference.shape)}"
    error = np.abs(_widen(value) - _widen(reference)).max()
    return f"by up to {error:.3g}, for no known reason"


def find_mistake(value: Array, reference: Array) -> str:
    """Return the known mistake that makes an array differ from PyTorch's, or ""."""
    finders = (_find_order_or_scale, _find_rounding, _find_padding, _find_missing_part)
    return next(filter(None, (find(value, reference) for find in finders)), "")


def _find_order_or_scale(value: Array, reference: Array) -> str:
    """Return the order of axes or channels, and the scale, that makes both arrays equal."""
    for order, ordered in _list_orders(value, reference):
        for flip, flipped in _list_flips(ordered):
            words = [text for text in (order, flip) if text]
            if words and _are_equal(flipped, reference):
                return " and ".join(words)
            if scale := _find_scale(flipped, reference):
                if flip:  # values of one channel get the mean of another
                    scale = "each has another normalization"
                return " and ".join((*words, scale))
    return ""


def _list_orders(value: Array, reference: Array) -> Iterator[tuple[str, Array]]:
    """Yield the array with each order of its axes that has the shape of the reference."""
    if value.ndim != reference.ndim or value.ndim > _MOST_AXES:
        return
    unchanged = tuple(range(value.ndim))
    for order in permutations(unchanged):
        if tuple(value.shape[axis] for axis in order) == reference.shape:
            is_picture = order in ((0, 3, 1, 2), (2, 0, 1))
            text = (
                "the channels are the last axis (NHWC in place of NCHW)"
                if is_picture
                else (f"its axes are in the order {list(order)}")
            )
            yield ("" if order == unchanged else text), value.transpose(order)


def _list_flips(value: Array) -> Iterator[tuple[str, Array]]:
    """Yield the array, and it with the channels in the opposite order."""
    yield "", value
    for axis, size in enumerate(value.shape):
        if size in _CHANNELS and value.ndim >= 3:
            yield "the channels are in the opposite order (BGR and RGB)", np.flip(value, axis)


def _find_scale(value: Array, reference: Array) -> str:
    """Return the scale and offset between both arrays, for all or for each channel."""
    if value.shape != reference.shape or value.size < 4 or reference.dtype.kind != "f":
        return ""
    given, target = _widen(value), _widen(reference)
    if (fit := _fit(given, target)) is not None:
        factor, offset = fit
        if abs(offset) < _EQUAL and abs(1 / factor - _BYTE) < _EQUAL * _BYTE:
            return "its values are 0 to 255: divide by 255"
        if abs(offset) < _EQUAL and abs(factor - _BYTE) < _EQUAL * _BYTE:
            return "its values are 0 to 1, and PyTorch's 0 to 255"
        if abs(factor - 1) > _EQUAL or abs(offset) > _EQUAL * float(np.abs(target).max()):
            return _describe_normalization([factor], [offset])
    for axis, size in enumerate(value.shape):
        if size not in _CHANNELS:
            continue
        pairs = zip(np.moveaxis(given, axis, 0), np.moveaxis(target, axis, 0), strict=True)
        fits = [_fit(one, other) for one, other in pairs]
        known = [fit for fit in fits if fit is not None]
        if len(known) == size and any(abs(f - 1) > _EQUAL or abs(o) > _EQUAL for f, o in known):
            return _describe_normalization([f for f, _ in known], [o for _, o in known])
    return ""


def _describe_normalization(factors: Sequence[float], offsets: Sequence[float]) -> str:
    means = [0.0 - offset / factor for factor, offset in zip(factors, offsets, strict=True)]
    deviations = [1 / factor for factor in factors]
    texts = [", ".join(f"{x:.4g}" for x in values) for values in (means, deviations)]
    return (
        f"it is not normalized: PyTorch subtracts the mean [{texts[0]}] and divides by [{texts[1]}]"
    )


def _fit(value: Array, reference: Array) -> tuple[float, float] | None:
    """Return factor and offset of a line through all pairs, or None if there is none."""
    x, y = value.ravel(), reference.ravel()
    spread = float(x.std())
    if not spread or not float(y.std()):
        return None
    factor = float(((x - x.mean()) * (y - y.mean())).mean() / spread**2)
    offset = float(y.mean() - factor * x.mean())
    if not factor or float(np.abs(factor * x + offset - y).max()) > _EQUAL * float(np.abs(y).max()):
        return None
    return factor, offset


def _find_rounding(value: Array, reference: Array) -> str:
    if value.shape != reference.shape or reference.dtype.kind != "f":
        return ""
    target = _widen(reference)
    for name, change in (("rounded", np.round), ("cut", np.trunc), ("rounded down", np.floor)):
        changed = change(target)
        if not np.array_equal(changed, target) and np.array_equal(_widen(value), changed):
            return f"it is {name} to integers"
    return ""


def _find_padding(value: Array, reference: Array) -> str:
    """Return a problem if rows have their padding at the other end, or of another value."""
    if value.shape != reference.shape or value.ndim not in (2, 3):
        return ""
    shifts = [_find_shift(*rows) for rows in zip(value, reference, strict=True)]
    if None not in shifts and any(shifts):
        return "its rows begin at another position: the padding is on the other side"
    differs = value != reference
    given, target = np.unique(value[differs]), np.unique(reference[differs])
    if len(given) == len(target) == 1 and not differs.all():
        return f"it has {given[0]:g} where PyTorch has {target[0]:g}: another value of padding"
    return ""


def _find_shift(one: Array, other: Array) -> int | None:
    """Return by how much a row is rotated, or None if it is another row."""
    return next(
        (shift for shift in range(len(one)) if np.array_equal(np.roll(other, shift, 0), one)), None
    )


def _find_missing_part(value: Array, reference: Array) -> str:
    """Return a problem if one array is the begin or the end of the other."""
    if value.ndim != reference.ndim:
        return ""
    axes = [axis for axis in range(value.ndim) if value.shape[axis] != reference.shape[axis]]
    if len(axes) != 1:
        return _find_lost_context(value, reference)
    axis, short, long = axes[0], value, reference
    is_short = value.shape[axis] < reference.shape[axis]
    if not is_short:
        short, long = reference, value
    size, count = short.shape[axis], long.shape[axis] - short.shape[axis]
    for end, start in (("first", count), ("last", 0)):
        if _are_equal(np.take(long, range(start, start + size), axis), short):
            verb = "lacks" if is_short else "has in addition"
            return f"it {verb} the {end} {count} values of axis {axis}"
    return ""


def _find_lost_context(value: Array, reference: Array) -> str:
    """Return a problem if a part of the values is 0, and the rest is equal."""
    if value.shape != reference.shape:
        return ""
    differs = np.abs(_widen(value) - _widen(reference)) > _EQUAL * max(1.0, _measure(reference))
    is_lost = differs.any() and not differs.all() and not np.any(value[differs])
    return "it has 0 where PyTorch has values, such as a context" if is_lost else ""


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    result: Array = powers / powers.sum(-1, keepdims=True)
    return result


#: Functions of an output that a program may return -> the name of the result.
_RESULTS: Mapping[str, Callable[[Array], Array]] = {
    "{}": lambda x: x,
    "the softmax of {}": _softmax,
    "the sigmoid of {}": lambda x: 1 / (1 + np.exp(-x)),
    "the logarithm of the softmax of {}": lambda x: np.log(_softmax(x)),
    "the index of the largest value of {}": lambda x: x.argmax(-1),
    "the largest value of {}": lambda x: x.max(-1),
    "the largest value of the softmax of {}": lambda x: _softmax(x).max(-1),
    "{} above 0": lambda x: x > 0,
    "{} above 0.5": lambda x: x > 0.5,
    "the mean of {} over axis 1": lambda x: x.mean(1),
    "the first row of {} along axis 1": lambda x: x[:, 0],
    "the last row of {} along axis 1": lambda x: x[:, -1],
    "the largest values of {} over axis 1": lambda x: x.max(1),
}


def _explain_result(inputs: Values, outputs: Values, actual: Values, expected: Values) -> str:
    """Return what PyTorch's program and the caller return of the outputs of the file."""
    candidates = [*_list_results(inputs, outputs)]
    for key, reference in expected.items():
        value = actual.get(key)
        if value is None or value.dtype.kind == "U" or _are_equal(value, reference):
            continue
        target = next((text for text, each in candidates if _are_same(each, reference)), "")
        returned = next((text for text, each in candidates if _are_same(each, value)), "")
        if target or returned:
            expected_text, actual_text = target or "something else", returned or "something else"
            return f"{name_value(key)} is {actual_text}, and PyTorch's is {expected_text}"
    return ""


def _list_results(inputs: Values, outputs: Values) -> Iterator[tuple[str, Array]]:
    """Yield functions of each output with their names, the simplest ones first."""
    for name, output in outputs.items():
        wide = _widen(output)
        for text, function in _RESULTS.items():
            try:
                with np.errstate(all="ignore"):
                    result = np.asarray(function(wide))
            except (ValueError, IndexError):
                continue
            yield text.format(f"'{name}'"), result
            if result.dtype.kind == "f" and result.ndim:
                lengths = np.sqrt(np.square(result).sum(-1, keepdims=True))
                with np.errstate(all="ignore"):
                    yield f"{text.format(repr(name))} divided by its length", result / lengths
        for mask_name, mask in inputs.items():
            if wide.ndim == 3 and mask.shape == wide.shape[:2]:
                weights = _widen(mask)[..., None]
                with np.errstate(all="ignore"):
                    mean = (wide * weights).sum(1) / weights.sum(1)
                    length = np.sqrt(np.square(mean).sum(-1, keepdims=True))
                    yield f"the mean of '{name}' over the rows of '{mask_name}'", mean
                    text = f"the mean of '{name}' over the rows of '{mask_name}'"
                    yield f"{text} divided by its length", mean / length


def _are_same(value: Array, reference: Array) -> bool:
    """Return whether both arrays have equal values, whatever axes of size 1 they have."""
    first, second = (np.squeeze(_widen(each)) for each in (value, reference))
    return _are_equal(first, second)


def _are_equal(value: Array, reference: Array) -> bool:
    if value.shape != reference.shape:
        return False
    if "U" in (value.dtype.kind, reference.dtype.kind):
        return bool(np.array_equal(value, reference))
    first, second = _widen(value), _widen(reference)
    if value.dtype.kind in "iub" and reference.dtype.kind in "iub":
        return bool(np.array_equal(first, second))
    scale = _measure(reference)
    return bool(np.allclose(first, second, 0.0, _EQUAL * scale, equal_nan=True))


def _measure(array: Array) -> float:
    """Return the largest finite magnitude."""
    wide = np.abs(_widen(array))
    finite = wide[np.isfinite(wide)]
    return float(finite.max()) if finite.size else 0.0


def _widen(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _correlate(value: Array, reference: Array) -> float:
    x, y = _widen(value).ravel(), _widen(reference).ravel()
    if not x.std() or not y.std():
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])
