"""Pairs of sizes whose quotient is rounded across an integer, for files that compute with it.

A nearest resize to the size of another input reads row `floor(i * (a / b))` in PyTorch and
`floor(i / (b / a))` in ONNX. An `arange` with the step `a / b` has one element more if float32
rounds the step down. Only few of the pairs of sizes show that, so they are computed and not drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, permutations
from typing import Any

import numpy as np

from exporter.manifest import Axis, ModelSpec
from exporter.runtimes.session import Array
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.inputs.input_sets import (
    SWEEP_RUNS,
    create_size_set,
    measure_run,
)
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, count_weights, run_model
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.torch_private.internals import read_schema

#: Operators that compute positions by a quotient of sizes.
_RESIZES = ("upsample_nearest", "_upsample_nearest_exact")
_RANGES = ("arange", "linspace")
#: Sizes of each axis, pairs for each kind of rounding and order of the axes, and pairs in all.
_SIZES, _PAIRS, _MOST = 64, 2, 16


def choose_quotient_sizes(
    opset_export: OpsetExport, known: Sequence[Mapping[str, int]], operators: Collection[str]
) -> list[dict[str, int]]:
    """Return sizes of two axes each at which a quotient of them is rounded, while runs are cheap.

    `known`: The sizes of existing samples, the declared ones first.
    `operators`: PyTorch's operators in the captured or traced graph; empty if they are unknown.
    """
    spec = opset_export.spec
    if len(spec.free_axes) < 2 or (operators and not any(map(_may_divide, operators))):
        return []
    if not _divides(opset_export, known[0]):
        return []
    weights = count_weights(opset_export.model)
    budget = float(SWEEP_RUNS)
    chosen: list[dict[str, int]] = []
    for sizes in list_quotient_pairs(spec, known[0]):
        if sizes in chosen or sizes in known:
            continue
        budget -= measure_run(spec, sizes, weights)
        if budget < 0 or len(chosen) == _MOST:
            break
        chosen.append(sizes)
    return chosen


def _may_divide(operator: str) -> bool:
    return any(name in operator for name in (*_RESIZES, *_RANGES))


def _divides(opset_export: OpsetExport, sizes: Mapping[str, int]) -> bool:
    """Return whether a run resizes, or has a range with a number that is no integer type."""
    has_quotient = False

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal has_quotient
        name = str(read_schema(func).name).removeprefix("aten::")
        has_step = name.startswith(_RANGES) and any(isinstance(each, float) for each in args)
        has_quotient |= has_step or name.startswith(_RESIZES)
        return func(*args, **kwargs)

    spec = opset_export.spec
    inputs = draw_inputs(spec, create_size_set(spec, sizes), opset_export.root)
    try:
        with BufferSnapshot(opset_export.model), create_mode(run):
            run_model(opset_export.model, spec, inputs)
    except Failure:
        return False
    return has_quotient


def list_quotient_pairs(spec: ModelSpec, declared: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield complete sizes, the cheapest pair of each kind of rounding first."""
    kinds: list[list[dict[str, int]]] = []
    for first, second in permutations(spec.free_axes, 2):
        for pairs in _find_rounded(_list_sizes(first), _list_sizes(second)):
            cheapest = sorted(pairs, key=lambda pair: pair[0] * pair[1])
            complete = (
                spec.complete_sizes({**declared, first.name: a, second.name: b})
                for a, b in cheapest
            )
            kinds.append(list(islice(filter(spec.allows_sizes, complete), _PAIRS)))
    for turn in range(_PAIRS):
        yield from (pairs[turn] for pairs in kinds if turn < len(pairs))


def _list_sizes(axis: Axis) -> Array:
    start = axis.smallest or axis.multiple_of
    sizes = range(start, start + _SIZES * axis.multiple_of, axis.multiple_of)
    return np.array([size for size in sizes if axis.allows(size)], np.int64)


def _find_rounded(first: Array, second: Array) -> list[list[tuple[int, int]]]:
    """Return the pairs of sizes with another result in float32, for each kind of computation."""
    if not first.size or not second.size:
        return []
    a, b = first[:, None], second[None, :]
    share = a.astype(np.float32) / b.astype(np.float32)
    scale = b.astype(np.float32) / a.astype(np.float32)
    positions = np.arange(min(int(second.max()), _SIZES), dtype=np.float32)
    products = np.floor(positions * share[..., None])
    quotients = np.floor(positions / scale[..., None])
    step = share.astype(np.float64)
    kinds = (
        ((products != quotients) & (positions < b[..., None])).any(-1),
        *(np.ceil(end / step) != np.ceil(end / (a / b)) for end in (1, a)),
    )
    return [[(int(first[i]), int(second[j])) for i, j in np.argwhere(kind)] for kind in kinds]
