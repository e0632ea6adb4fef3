"""The sizes at which a traced model takes another branch than at the exported ones.

A trace has one branch of `if n > 16` and no condition. So PyTorch runs at other sizes, and the
instructions that Python executes in the model show its branch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from exporter.worker.dependencies.path_groups import find_model_file
from exporter.worker.export.attempts import ExportContext
from exporter.worker.export.captured_conditions import MOST_SAMPLES
from exporter.worker.inputs.input_sets import count_elements, create_size_set
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, run_model

_LAST_SMALL_SIZE = 64
_LARGE_SIZES = (65, 101, 257, 513, 1025)
#: Elements of the largest tensor, or weights, above which a run is slow.
_LARGE, _MANY_WEIGHTS = 1 << 17, 1 << 20
#: Runs of PyTorch, for a slow and for a fast model.
_FEW_RUNS, _RUNS = 8, 160
#: The largest number in a model that is taken for a size.
_LARGEST_CONSTANT = 1 << 16


@dataclass(slots=True)
class _Path:
    """The part of a model that one run executes."""

    root: Path
    instructions: set[tuple[CodeType, int]] = field(default_factory=set)
    constants: set[int] = field(default_factory=set)
    """Whole numbers in the functions and modules: branches change near them."""
    has_failed: bool = False

    def enter(self, frame: FrameType, *_: object) -> Callable[..., Any] | None:
        """Follow a function of the model; functions of libraries run without a trace."""
        if not find_model_file(frame.f_code.co_filename, self.root):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        owner = frame.f_locals.get("self")
        attributes = vars(owner).values() if isinstance(owner, torch.nn.Module) else ()
        numbers = (each for each in (*frame.f_code.co_consts, *attributes) if type(each) is int)
        self.constants.update(each for each in numbers if 1 < each <= _LARGEST_CONSTANT)
        return self.follow

    def follow(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        """Add the instruction that a function of the model executes next."""
        if event == "opcode":
            self.instructions.add((frame.f_code, frame.f_lasti))
        return self.follow


def choose_branch_sizes(
    context: ExportContext, known: Sequence[Mapping[str, int]]
) -> tuple[tuple[dict[str, int], ...], tuple[str, ...]]:
    """Return sizes for each further branch, and a text for each axis with untried sizes.

    Args:
        context: The model.
        known: The sizes of existing samples; the first ones are the declared ones.
    """
    spec, model = context.spec, context.model
    declared = dict(known[0])
    weights = model.parameters() if isinstance(model, torch.nn.Module) else ()
    is_slow = count_elements(spec, declared) > _LARGE
    is_slow = is_slow or sum(weight.numel() for weight in weights) > _MANY_WEIGHTS
    limit = max(_LARGE, count_elements(spec, declared))
    first = _follow(context, declared)
    seen = {frozenset(first.instructions)}
    if not is_slow:
        others = (sizes for sizes in known[1:] if count_elements(spec, sizes) <= limit)
        seen |= {frozenset(_follow(context, sizes).instructions) for sizes in others}
    chosen: list[dict[str, int]] = []
    unproved = []
    for axis in spec.free_axes:
        candidates = (
            spec.complete_sizes({**declared, axis.name: size})
            for size in _list_sizes(first.constants, declared[axis.name])
            if axis.allows(size)
        )
        cheap = [
            sizes
            for sizes in candidates
            if spec.allows_sizes(sizes) and count_elements(spec, sizes) <= limit
        ]
        runs = max(1, (_FEW_RUNS if is_slow else _RUNS) // len(spec.free_axes))
        for sizes in islice(cheap, runs):
            path = _follow(context, sizes)
            instructions = frozenset(path.instructions)
            # An operator that fails is no branch; a `raise` in the model is one.
            is_new = not instructions <= first.instructions if path.has_failed else True
            if instructions not in seen and is_new and len(chosen) < MOST_SAMPLES:
                seen.add(instructions)
                chosen.append(sizes)
        if len(cheap) > runs:
            untried = f"at {len(cheap) - runs} of {len(cheap)} sizes of axis '{axis.name}'"
            unproved.append(f"a branch of the model {untried}, because its runs are slow")
    if len(chosen) == MOST_SAMPLES:
        unproved.append(f"further branches: only {MOST_SAMPLES} branches get a sample")
    return tuple(chosen), tuple(unproved)


def _list_sizes(constants: set[int], example: int) -> Iterator[int]:
    """Yield the sizes to try: around the numbers in the model first, then small and large ones."""
    near = {number + shift for number in constants for shift in (-1, 0, 1)}
    for sizes in (near - {*range(4)}, {*range(_LAST_SMALL_SIZE + 1)} - near, {*_LARGE_SIZES}):
        yield from sorted(sizes - {example}, key=lambda size: abs(size - example))


def _follow(context: ExportContext, sizes: Mapping[str, int]) -> _Path:
    """Return the path of PyTorch through the model at some sizes."""
    path = _Path(context.root)
    inputs = draw_inputs(context.spec, create_size_set(context.spec, sizes), context.root)
    buffers = BufferSnapshot(context.model)
    previous = sys.gettrace()
    sys.settrace(path.enter)
    try:
        run_model(context.model, context.spec, inputs)
    except Failure:
        path.has_failed = True
    finally:
        sys.settrace(previous)
        buffers.restore()
    return path
