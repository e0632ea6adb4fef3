"""Samples for each branch of a model whose file may have only one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from exporter.worker.export.attempts import OpsetExport
from exporter.worker.export.size_terms import MOST_SAMPLES
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import (
    SWEEP_RUNS,
    InputSet,
    complete_smallest,
    count_elements,
    create_draw_set,
    create_size_set,
    measure_run,
)
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.process.failure import Failure
from exporter.worker.process.followed_code import find_blindness, follow_code
from exporter.worker.reference.eager_run import BufferSnapshot, count_weights, run_model
from exporter.worker.reference.model_path import ModelPath
from exporter.worker.torch_private import internals

#: Draws that search for a branch.
_DRAWS = 64
_LAST_SMALL_SIZE = 64
_LARGE_SIZES = (65, 101, 257, 513, 1025)
#: Elements of the largest tensor, or weights, above which a run is slow.
_LARGE, _MANY_WEIGHTS = 1 << 17, 1 << 20
#: Runs of PyTorch after a warning of the tracer, for a slow and for a fast model.
_FEW_RUNS, _RUNS = 8, 160
#: What all runs after a warning may take, in units of `measure_run`: about 4 seconds. Each axis has
#: its least number of runs also beyond it.
_MOST_COST = 4096.0
#: Runs without a warning, while they take no more than the sweep.
_QUIET_RUNS = 16
#: Runs for each axis, however slow: the export of such a model takes longer.
_LEAST_RUNS = 4


def choose_branches(
    opset_export: OpsetExport,
    used: Sequence[Mapping[str, int]],
    sizes: Sequence[Mapping[str, int]],
    *,
    is_warned: bool,
    is_boolean: bool,
    has_draws: bool,
) -> tuple[tuple[InputSet, ...], tuple[dict[str, int], ...], tuple[str, ...]]:
    """Return draws and sizes of further branches, and a text for each that no sample proves.

    `used`, `sizes`: The sizes of existing samples, the declared ones first, and of new ones.
    `is_warned`, `is_boolean`: Whether the file has one of several branches by sizes, by values.
    `has_draws`: Whether the file has the branches of its example on values.
    """
    if find_blindness():  # each cell says so: see `exporter/worker/instruments.py`
        return (), (), ()
    further: tuple[dict[str, int], ...] = ()
    draws: tuple[InputSet, ...] = ()
    unproved: tuple[str, ...] = ()
    first = _follow(opset_export, used[0])
    if is_warned or first.has_branch:
        known = (*used, *sizes)
        further, unproved = _choose_sizes(opset_export, known, first, is_warned=is_warned)
    if first.has_branch and has_draws:
        draws, texts = _choose_draws(opset_export, used, is_warned=is_boolean)
        unproved += texts
    return draws, further, unproved


def _choose_sizes(
    opset_export: OpsetExport,
    known: Sequence[Mapping[str, int]],
    first: ModelPath,
    *,
    is_warned: bool,
) -> tuple[tuple[dict[str, int], ...], tuple[str, ...]]:
    """Return sizes for each further branch, and a text for each axis with untried sizes.

    A trace has one branch of `if n > 16` and no condition, and the tracer does not warn of each
    one. So PyTorch runs at other sizes, and the instructions that Python executes in the model show
    its branch.

    `known`: The sizes of existing samples; the first ones are the declared ones.
    `first`: The path at the declared sizes.
    `is_warned`: Whether a warning or a condition shows that the file has one of several branches.
    Without it, fewer runs search for one.
    """
    spec, weights = opset_export.spec, count_weights(opset_export.model)
    declared = dict(known[0])
    is_slow = count_elements(spec, declared) > _LARGE or weights > _MANY_WEIGHTS
    limit = max(_LARGE, count_elements(spec, declared))
    seen = {frozenset(first.instructions)}
    budget = _MOST_COST if is_warned else float(SWEEP_RUNS)
    if is_warned and not is_slow:
        others = (sizes for sizes in known[1:] if count_elements(spec, sizes) <= limit)
        seen |= {frozenset(_follow(opset_export, sizes).instructions) for sizes in others}
    chosen: list[dict[str, int]] = []
    unproved = []
    most = (_FEW_RUNS if is_slow else _RUNS) if is_warned else _QUIET_RUNS
    for axis in spec.free_axes:
        candidates = (
            spec.complete_sizes({**declared, axis.name: size})
            for size in _list_sizes(first.constants, declared[axis.name], is_warned=is_warned)
            if axis.allows(size)
        )
        cheap = [
            sizes
            for sizes in candidates
            if spec.allows_sizes(sizes) and count_elements(spec, sizes) <= limit
            if sizes not in known
        ]
        runs = max(1, most // len(spec.free_axes))
        tried = 0
        for sizes in islice(cheap, runs):
            budget -= measure_run(spec, sizes, weights)
            if budget < 0 and tried >= _LEAST_RUNS:
                break
            tried += 1
            path = _follow(opset_export, sizes)
            instructions = frozenset(path.instructions)
            # An operator that fails is no branch; a `raise` in the model is one.
            is_new = not instructions <= first.instructions if path.has_failed else True
            if instructions not in seen and is_new and len(chosen) < MOST_SAMPLES:
                seen.add(instructions)
                chosen.append(sizes)
        # Without a warning, only the numbers in the model show where a branch may be.
        near = {size for number in first.constants for size in (number, number + 1)}
        left = [sizes for sizes in cheap[tried:] if is_warned or sizes[axis.name] in near]
        if left and first.has_branch:
            untried = f"at {len(left)} of {len(cheap)} sizes of axis '{axis.name}'"
            reason = "its runs are slow" if is_warned else "few sizes run without a warning"
            unproved.append(f"a branch of the model {untried}, because {reason}")
    if len(chosen) == MOST_SAMPLES:
        unproved.append(f"further branches: only {MOST_SAMPLES} branches get a sample")
    return tuple(chosen), tuple(unproved)


def _list_sizes(constants: set[int], example: int, *, is_warned: bool) -> Iterator[int]:
    """Yield the sizes to try: around the numbers in the model first, then small and large ones.

    A larger number is more often a limit than a number of heads or of dimensions.
    """
    numbers = sorted(constants, reverse=True)
    # A size beyond a number shows both `n > number` and `n >= number`.
    above, below = ([number + shift for number in numbers] for shift in (1, -1))
    pairs = zip(numbers, above, below, strict=True)
    beyond = [high if number >= example else low for number, high, low in pairs]
    around = (*beyond, *numbers, *above, *below)
    near = dict.fromkeys(size for size in around if size > 3 and size != example)
    yield from near
    small = {*range(_LAST_SMALL_SIZE + 1)} if is_warned else {_LAST_SMALL_SIZE}
    for sizes in (small, {*_LARGE_SIZES}):
        further = sizes - near.keys() - {example}
        yield from sorted(further, key=lambda size: abs(size - example))


def _choose_draws(
    opset_export: OpsetExport,
    known: Sequence[Mapping[str, int]],
    *,
    is_warned: bool,
) -> tuple[tuple[InputSet, ...], tuple[str, ...]]:
    """Return a draw for each further branch at the smallest sizes, and a text for untried ones.

    A condition on all elements of a tensor is met more often if there are few.
    """
    spec = opset_export.spec
    sizes = complete_smallest(spec, {})
    is_drawn = any(item.fill.is_random for item in spec.inputs)
    if not is_drawn or spec.inputs_from or not spec.allows_sizes(sizes):
        return (), ()
    most = _DRAWS if is_warned else _QUIET_RUNS
    cost = measure_run(spec, sizes, count_weights(opset_export.model))
    draws = min(most, int((_DRAWS if is_warned else SWEEP_RUNS) / cost))
    seen: set[int] = set()
    chosen: list[InputSet] = []
    for seed in range(draws):
        draw = create_draw_set(spec, seed, sizes)
        path = _follow(opset_export, draw)
        is_known = path.has_failed or (seed == 0 and sizes in known)
        if path.order not in seen and not is_known and len(chosen) < MOST_SAMPLES:
            chosen.append(draw)
        seen.add(path.order)
    if draws == most or not is_warned:
        return tuple(chosen), ()
    untried = f"for {most - draws} of {most} draws, because its runs are slow"
    return tuple(chosen), (f"a branch of the model on values {untried}",)


def _follow(opset_export: OpsetExport, chosen: InputSet | Mapping[str, int]) -> ModelPath:
    """Return the path of PyTorch through the model for an input set or at some sizes."""
    if not isinstance(chosen, InputSet):
        chosen = create_size_set(opset_export.spec, chosen)
    return follow_inputs(opset_export, draw_inputs(opset_export.spec, chosen, opset_export.root))


def follow_inputs(opset_export: OpsetExport, inputs: Tensors) -> ModelPath:
    """Return the path of PyTorch through the model for these inputs."""
    path = ModelPath(opset_export.root)
    try:
        with BufferSnapshot(opset_export.model), follow_code(path.enter, path.add):
            outputs = run_model(opset_export.model, opset_export.spec, inputs)
    except Failure:
        path.has_failed = True
    else:
        leaves = internals.tree_leaves(outputs)
        path.order = hash((path.order, *(tuple(leaf.shape) for leaf in leaves)))
    return path
