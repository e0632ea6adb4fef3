"""How far outputs of PyTorch are apart: from themselves, from float64, between inputs.

In: outputs. Out: the figures of a `Reference`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from exporter.checks.comparison.compare_arrays import measure_scale
from exporter.manifest import ModelSpec
from exporter.worker.reference.outputs import Outputs, Returned, list_items

#: Above this share of the output's scale, float32 and float64 do not compute the same thing (an
#: argmax went the other way, a cast inside), and the difference is no measure of rounding.
_LARGEST_NOISE = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}


def compute_scale(output: Returned) -> float:
    """Its size, by the measure of the checks; 0 for what is empty or no floats.

    Of a sequence that of the smallest item that is not 0: the limits are each item's own.
    """
    sizes = [_scale(item) for item in list_items(output)]
    return min((size for size in sizes if size), default=0.0)


def _scale(tensor: torch.Tensor) -> float:
    if not tensor.is_floating_point():
        return 0.0
    # numpy knows no bfloat16.
    known = tensor.float() if tensor.dtype is torch.bfloat16 else tensor
    return measure_scale(known.numpy())


def describe_difference(spec: ModelSpec, first: Outputs, second: Outputs) -> str:
    """How two runs on one input set differ; empty where they do not."""
    for item, one, other in zip(spec.outputs, first, second, strict=True):
        what = f"output '{item.name}'"
        ones, others = list_items(one), list_items(other)
        if len(ones) != len(others):
            return f"{what} has {len(ones)} items once and {len(others)} then"
        for place, pair in enumerate(zip(ones, others, strict=True)):
            if found := _difference(*pair):
                return f"{f'item {place} of ' if item.kind == 'sequence' else ''}{what} {found}"
    return ""


def _difference(one: torch.Tensor, other: torch.Tensor) -> str:
    if one.shape != other.shape:
        return f"is {list(one.shape)} once and {list(other.shape)} then"
    if not _is_same(one, other):
        return f"differs by {_apart(one, other):.1e} between two runs on one input"
    return ""


def compute_spread(
    declared: Outputs, others: Sequence[Outputs], elsewhere: Sequence[Outputs] = ()
) -> tuple[float | None, ...]:
    """How far each output moves between input values, as a share of its scale.

    An output that is no float must be equal, so that any other value counts in full. So does a
    number in the place of NaN or Inf.

    Args:
        declared: The outputs on the declared inputs.
        others: The outputs on other values in the same shapes.
        elsewhere: The outputs at other sizes and in cases: they tell whether an integer ever has
            another value, since one label of few may stay by chance.
    """
    found: list[float | None] = []
    for index, output in enumerate(declared):
        twins = [other[index] for other in others if _shapes(other[index]) == _shapes(output)]
        moved = max((_moved(output, twin) for twin in twins), default=None)
        values = _exact_values(output)
        if not moved and values and any(values != _exact_values(o[index]) for o in elsewhere):
            moved = 1.0
        found.append(moved)
    return tuple(found)


def _shapes(output: Returned) -> list[torch.Size]:
    return [item.shape for item in list_items(output)]


def _exact_values(output: Returned) -> set[float]:
    """The values in it, if they are no floats."""
    exact = (item for item in list_items(output) if not item.is_floating_point())
    return {value for item in exact for value in torch.unique(item).tolist()}


def _moved(output: Returned, twin: Returned) -> float:
    """How far the item that moves furthest does."""
    pairs = zip(list_items(output), list_items(twin), strict=True)
    return max((_tensor_moved(one, other) for one, other in pairs), default=0.0)


def _tensor_moved(one: torch.Tensor, other: torch.Tensor) -> float:
    if _is_same(one, other):
        return 0.0
    if not one.is_floating_point():
        return 1.0
    share = _apart(one, other) / (_scale(one) or 1.0)
    return share if torch.equal(one.isfinite(), other.isfinite()) else max(share, 1.0)


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def compute_noise(
    pairs: Sequence[tuple[Outputs, Outputs | None]],
) -> tuple[tuple[float | None, ...], str]:
    """For each output the largest float32 error as a share of its scale; else the reasons.

    Args:
        pairs: For each sample the outputs as declared and in float64; the first is never empty.
    """
    count = len(pairs[0][0])
    if any(exact is None for _, exact in pairs):
        return (None,) * count, "the model does not run in float64"
    shares: list[float | None] = []
    reasons: list[str] = []
    for index in range(count):
        columns = [(declared[index], exact[index]) for declared, exact in pairs if exact]
        share, reason = _noise_of(columns)
        shares.append(share)
        reasons += [f"output {index}: {reason}"] if reason else []
    return tuple(shares), "; ".join(reasons)


def describe_overflow(pairs: Sequence[tuple[Outputs, Outputs | None]]) -> tuple[str, ...]:
    """For each output where it is Inf or NaN and float64 is not; else an empty text.

    Args:
        pairs: As for `compute_noise`.
    """
    found = []
    for index in range(len(pairs[0][0])):
        columns = [(declared[index], exact[index]) for declared, exact in pairs if exact]
        tensors = [
            pair
            for declared, exact in columns
            for pair in zip(list_items(declared), list_items(exact), strict=False)
        ]
        found.append(_overflow(tensors))
    return tuple(found)


def _overflow(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> str:
    count, total, largest = 0, 0, 0.0
    for declared, exact in pairs:
        if declared.is_floating_point() and declared.shape == exact.shape:
            beyond = ~declared.isfinite() & exact.isfinite()
            count, total = count + int(beyond.sum()), total + beyond.numel()
            largest = max(largest, _largest(exact[beyond].abs()))
    if not count:
        return ""
    dtype = str(pairs[0][0].dtype).removeprefix("torch.")
    return (
        f"{dtype} overflows in PyTorch: {count} of {total} elements are Inf or NaN where float64 "
        f"has numbers up to {largest:.1e}"
    )


def _noise_of(columns: Sequence[tuple[Returned, Returned]]) -> tuple[float | None, str]:
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    for declared, exact in columns:
        if len(list_items(declared)) != len(list_items(exact)):
            return None, "it has another number of items in float64"
        pairs += zip(list_items(declared), list_items(exact), strict=True)
    return _tensor_noise(pairs) if pairs else (None, "")


def _tensor_noise(
    columns: Sequence[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[float | None, str]:
    dtype = columns[0][0].dtype
    if not dtype.is_floating_point:
        return None, ""
    largest = 0.0
    for declared, exact in columns:
        if exact.dtype != torch.float64 or dtype == torch.float64:
            return None, "it is computed in its declared dtype whatever the inputs are"
        if declared.shape != exact.shape:
            return None, "it has another shape in float64"
        size = _scale(exact)
        # What masks others lies beyond the scale, and counts by its own size.
        errors = (declared.double() - exact).abs() / exact.abs().clamp(min=size)
        largest = max(largest, _largest(errors) if size else 0.0)
    if not largest <= _LARGEST_NOISE.get(dtype, 1e-3):
        return None, f"float64 differs by {largest:.1e} of the scale, which is no rounding"
    return largest, ""


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return _largest((one.double() - other.double()).abs())


def _largest(magnitudes: torch.Tensor) -> float:
    if magnitudes.numel() and math.isfinite(largest := float(magnitudes.max())):
        return largest
    finite = magnitudes[torch.isfinite(magnitudes)]
    return float(finite.max()) if finite.numel() else 0.0
