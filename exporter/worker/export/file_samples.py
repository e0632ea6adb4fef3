"""Samples for one kind of file: its captured conditions, its traced branches, its operators."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from exporter.core import import_plugin
from exporter.jobs import LONG_SWEEP, SWEEP, JobFolder, Reference, Sample, write_json
from exporter.records.record import TRACED_BRANCH, TRACER_PREFIX
from exporter.worker.dependencies.source_files import find_model_file
from exporter.worker.export.attempts import ExportContext, ExportedFile
from exporter.worker.export.size_terms import MOST_SAMPLES, choose_breaking_sizes, read_conditions
from exporter.worker.inputs.input_sets import (
    LAST_SIZE,
    SWEEP_RUNS,
    InputSet,
    complete_smallest,
    count_elements,
    create_draw_set,
    create_multiples_set,
    create_size_set,
    list_sweep,
    measure_run,
)
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, run_model
from exporter.worker.reference.noise import is_repeatable
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.reference.reference_run import run_further_sets
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.internals import read_schema

operator_regions = import_plugin("regions")  # the fork server loads it

#: The promises without a sample if the export changed the model and what builds it.
_CHANGED = "other sizes and branches, because the export changed the model"
#: Numbers that get multiples, and numbers that other special values contain.
_MOST_NUMBERS, _USUAL_NUMBERS = 8, (0.0, 0.5, 1.0, 2.0)
_SMALLEST_SHARE = 1e-3


# A file may compute `x // 0.3` as `floor(x / 0.3)`, which differs at 1.5 only, and a trace keeps
# the branch of `(x == 0.7).any()`.
def find_input_numbers(context: ExportContext, sizes: Mapping[str, int]) -> tuple[float, ...]:
    """Return the numbers in the range of the inputs that meet an input before a tensor does."""
    inputs = draw_inputs(context.spec, create_size_set(context.spec, sizes), context.root)
    filled = (each.to(torch.complex128).abs() for each in inputs.values() if each.numel())
    largest = max((float(each.max()) for each in filled), default=0)
    # By address; the tensors stay alive, so no other one gets their memory.
    plain = {each.untyped_storage().data_ptr(): each for each in inputs.values()}
    numbers: dict[float, None] = {}

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        returned = func(*args, **kwargs)
        tensors = [*filter(torch.is_tensor, internals.tree_leaves((args, kwargs)))]
        others = [each for each in tensors if each.untyped_storage().data_ptr() not in plain]
        if len(others) < len(tensors) and all(each.numel() == 1 for each in others):
            for result in filter(torch.is_tensor, internals.tree_leaves(returned)):
                plain[result.untyped_storage().data_ptr()] = result
            pairs = zip(read_schema(func).arguments, args, strict=False)
            scalars = (value for each, value in pairs if str(each.type) == "number")
            numbers.update(dict.fromkeys(abs(float(each)) for each in (*others, *scalars)))
        return returned

    try:
        with BufferSnapshot(context.model), create_mode(run):
            run_model(context.model, context.spec, inputs)
    except Failure:
        return ()
    # A smaller number is no step or threshold of such inputs, but prevents a division by 0.
    possible = (each for each in numbers if _SMALLEST_SHARE * largest <= each <= largest)
    usable = (each for each in possible if each not in _USUAL_NUMBERS)
    return tuple(islice(usable, _MOST_NUMBERS))


#: Draws that search for a branch.
_DRAWS = 64
_LAST_SMALL_SIZE = 64
_LARGE_SIZES = (65, 101, 257, 513, 1025)
#: Elements of the largest tensor, or weights, above which a run is slow.
_LARGE, _MANY_WEIGHTS = 1 << 17, 1 << 20
#: Runs of PyTorch after a warning of the tracer, for a slow and for a fast model.
_FEW_RUNS, _RUNS = 8, 160
#: Runs without a warning, while they take no more than the sweep.
_QUIET_RUNS = 16
#: The largest number in a model that is taken for a size.
_LARGEST_CONSTANT = 1 << 16


@dataclass(slots=True)
class _Path:
    """The part of a model that one run executes."""

    root: Path
    instructions: set[tuple[CodeType, int]] = field(default_factory=set)
    order: int = 0
    """A hash of the instructions in their order, and of the shapes of the outputs."""
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
            self.order = hash((self.order, id(frame.f_code), frame.f_lasti))
        return self.follow

    @property
    def has_branch(self) -> bool:
        """Whether a function of the model has a condition."""
        functions = {code for code, _ in self.instructions}
        names = {each.opname for code in functions for each in dis.get_instructions(code)}
        return any("_IF_" in name and "NONE" not in name for name in names)


# A trace has one branch of `if n > 16` and no condition, and the tracer does not warn of each one.
# So PyTorch runs at other sizes, and the instructions that Python executes in the model show its
# branch.
def choose_branch_sizes(
    context: ExportContext, known: Sequence[Mapping[str, int]], first: _Path, *, is_warned: bool
) -> tuple[tuple[dict[str, int], ...], tuple[str, ...]]:
    """Return sizes for each further branch, and a text for each axis with untried sizes.

    `known`: The sizes of existing samples; the first ones are the declared ones.
    `first`: The path at the declared sizes.
    `is_warned`: Whether a warning or a condition shows that the file has one of several branches.
    Without it, fewer runs search for one.
    """
    spec, weights = context.spec, _count_weights(context)
    declared = dict(known[0])
    is_slow = count_elements(spec, declared) > _LARGE or weights > _MANY_WEIGHTS
    limit = max(_LARGE, count_elements(spec, declared))
    seen = {frozenset(first.instructions)}
    budget = inf if is_warned else float(SWEEP_RUNS)
    if is_warned and not is_slow:
        others = (sizes for sizes in known[1:] if count_elements(spec, sizes) <= limit)
        seen |= {frozenset(_follow(context, sizes).instructions) for sizes in others}
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
        for sizes in islice(cheap, runs):
            budget -= measure_run(spec, sizes, weights)
            if budget < 0:
                break
            path = _follow(context, sizes)
            instructions = frozenset(path.instructions)
            # An operator that fails is no branch; a `raise` in the model is one.
            is_new = not instructions <= first.instructions if path.has_failed else True
            if instructions not in seen and is_new and len(chosen) < MOST_SAMPLES:
                seen.add(instructions)
                chosen.append(sizes)
        if len(cheap) > runs and is_warned:
            untried = f"at {len(cheap) - runs} of {len(cheap)} sizes of axis '{axis.name}'"
            unproved.append(f"a branch of the model {untried}, because its runs are slow")
    if len(chosen) == MOST_SAMPLES:
        unproved.append(f"further branches: only {MOST_SAMPLES} branches get a sample")
    return tuple(chosen), tuple(unproved)


def _count_weights(context: ExportContext) -> int:
    model = context.model
    weights = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return sum(weight.numel() for weight in weights)


def _list_sizes(constants: set[int], example: int, *, is_warned: bool) -> Iterator[int]:
    """Yield the sizes to try: around the numbers in the model first, then small and large ones."""
    near = {number + shift for number in constants for shift in (-1, 0, 1)}
    small = {*range(_LAST_SMALL_SIZE + 1)} if is_warned else {_LAST_SMALL_SIZE}
    for sizes in (near - {*range(4)}, small - near, {*_LARGE_SIZES}):
        yield from sorted(sizes - {example}, key=lambda size: abs(size - example))


def choose_branch_draws(
    context: ExportContext, known: Sequence[Mapping[str, int]], *, is_warned: bool
) -> tuple[tuple[InputSet, ...], tuple[str, ...]]:
    """Return a draw for each further branch at the smallest sizes, and a text for untried ones.

    A condition on all elements of a tensor is met more often if there are few.
    """
    spec = context.spec
    sizes = complete_smallest(spec, {})
    is_drawn = any(item.fill.is_random for item in spec.inputs)
    if not is_drawn or spec.inputs_from or not spec.allows_sizes(sizes):
        return (), ()
    most = _DRAWS if is_warned else _QUIET_RUNS
    cost = measure_run(spec, sizes, _count_weights(context))
    draws = min(most, int((_DRAWS if is_warned else SWEEP_RUNS) / cost))
    seen: set[int] = set()
    chosen: list[InputSet] = []
    for seed in range(draws):
        draw = create_draw_set(spec, seed, sizes)
        path = _follow(context, draw)
        is_known = path.has_failed or (seed == 0 and sizes in known)
        if path.order not in seen and not is_known and len(chosen) < MOST_SAMPLES:
            chosen.append(draw)
        seen.add(path.order)
    if draws == most or not is_warned:
        return tuple(chosen), ()
    untried = f"for {most - draws} of {most} draws, because its runs are slow"
    return tuple(chosen), (f"a branch of the model on values {untried}",)


def _follow(context: ExportContext, chosen: InputSet | Mapping[str, int]) -> _Path:
    """Return the path of PyTorch through the model for an input set or at some sizes."""
    path = _Path(context.root)
    if not isinstance(chosen, InputSet):
        chosen = create_size_set(context.spec, chosen)
    inputs = draw_inputs(context.spec, chosen, context.root)
    buffers, previous = BufferSnapshot(context.model), sys.gettrace()
    sys.settrace(path.enter)
    try:
        with buffers:
            outputs = run_model(context.model, context.spec, inputs)
    except Failure:
        path.has_failed = True
    else:
        leaves = internals.tree_leaves(outputs)
        path.order = hash((path.order, *(tuple(leaf.shape) for leaf in leaves)))
    finally:
        sys.settrace(previous)
    return path


def add_file_samples(
    context: ExportContext,
    folder: JobFolder,
    reference: Reference,
    exported: ExportedFile,
    groups: Sequence[str],
    operators: Collection[str],
) -> Reference:
    """Run the model on the samples that only some files need, and write the reference.

    `operators`: PyTorch's operators in the captured program or traced graph.
    """
    missing_groups = [group for group in groups if group not in reference.captures]
    spec, root = context.spec, context.root
    declared = [sample for sample in reference.samples if sample.kind == "declared"]
    if missing_groups and not is_repeatable(context.model, spec, folder, declared):
        fresh = wrap_with_call_objects(load_model(spec, root), spec, root)
        if not is_repeatable(fresh, spec, folder, declared):
            texts = dict.fromkeys(missing_groups, (_CHANGED,))
            return reference.model_copy(update={"unproved": reference.unproved | texts})
        context = replace(context, model=fresh)
    for group in missing_groups:
        known = [sample for sample in reference.samples if not sample.captures]
        if group in (SWEEP, LONG_SWEEP):
            limits = (LAST_SIZE, _count_weights(context)) if group == SWEEP else ()
            used = [sample.axes for sample in known]
            sets, unproved = list(list_sweep(spec, used, *limits)), list[str]()
        else:
            sets, unproved = _choose_capture_sets(context, known, exported, operators)
        names = {chosen.name for chosen in sets}
        others = {sample.name for sample in reference.samples if sample.captures}
        samples = [
            sample.model_copy(update={"captures": (*sample.captures, group)})
            if sample.captures and sample.name in names
            else sample
            for sample in reference.samples
        ]
        missing = [chosen for chosen in sets if chosen.name not in others]
        added = run_further_sets(context.model, spec, root, folder, missing, reference)
        samples += [sample.model_copy(update={"captures": (group,)}) for sample in added]
        is_complete = len(samples) == len(reference.samples)
        reference = reference.model_copy(
            update={
                "samples": tuple(samples),
                "captures": (*reference.captures, group),
                "unproved": reference.unproved | {group: tuple(unproved)},
                "is_reviewed": reference.is_reviewed and is_complete,
            }
        )
        write_json(folder.reference, reference)
    return reference


def _choose_capture_sets(
    context: ExportContext,
    known: Sequence[Sample],
    exported: ExportedFile,
    operators: Collection[str],
) -> tuple[list[InputSet], list[str]]:
    """Return the sets of a capture or trace, and the promises that no sample proves."""
    spec, captured = context.spec, exported.captured
    sets: list[InputSet] = []
    unproved: list[str] = []
    if spec.inputs_from is None or spec.inputs_from.takes_sizes:
        used = [sample.axes for sample in known]
        warnings = [note for note in exported.notes if note.startswith(TRACER_PREFIX)]
        is_warned = bool(warnings)
        sizes: tuple[dict[str, int], ...] = ()
        if captured is not None:
            conditions = read_conditions(captured.program, spec)
            sizes, texts = choose_breaking_sizes(conditions, spec, used)
            unproved += texts
            # The program has one of many values, such as `int(n**0.5) == 2`.
            is_warned = any(" == " in each.text for each in conditions.conditions)
        first = _follow(context, used[0])
        if is_warned or first.has_branch:
            further, texts = choose_branch_sizes(
                context, (*used, *sizes), first, is_warned=is_warned
            )
            sizes += further
            unproved += texts
        if first.has_branch and (captured is None or captured.notes):
            is_boolean = any(TRACED_BRANCH in note for note in warnings)
            draws, texts = choose_branch_draws(context, used, is_warned=is_boolean)
            sets += draws
            unproved += texts
        sets += [create_size_set(spec, each) for each in sizes]
    # A branch or loop of the graph accepts no dispatch mode, such as `torch.cond`.
    has_graphs = captured is not None and any(captured.program.graph_module.children())
    if spec.inputs_from is None and not has_graphs:
        smallest = min(known, key=lambda sample: count_elements(spec, sample.axes))
        if numbers := find_input_numbers(context, smallest.axes):
            sets.append(create_multiples_set(spec, numbers))
    revealing, hidden = operator_regions.choose_revealing_draws(context, exported.route, operators)
    return [*sets, *revealing], [*unproved, *hidden]
