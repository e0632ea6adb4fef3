"""Run a model at several sizes: its dynamic, equal and derived axes, their limits, its fills."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, product
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch

from exporter.checks.comparison.compare_arrays import compare_arrays, measure_scale, to_float64
from exporter.checks.comparison.compare_outputs import are_ties
from exporter.checks.comparison.tolerance import Limit
from exporter.commands.recording.child.call_description import (
    describe_usual_call,
    list_parameters,
    list_tensors,
    read_state,
)
from exporter.commands.recording.observation import (
    Observation,
    ProbedOutput,
    ProbeResult,
)
from exporter.core.errors import ExporterError
from exporter.core.text import join_names, pluralize, redact
from exporter.manifest import ModelSpec, StateNames
from exporter.manifest.resolved.call import Dim, SizeRule
from exporter.worker.inputs.call import build_tensor_call, to_numpy
from exporter.worker.inputs.input_sets import InputSet
from exporter.worker.inputs.input_tensors import draw_inputs, draw_lengths
from exporter.worker.model.call_objects import register_output_classes, wrap_with_call_objects
from exporter.worker.model.generation import measure_interface
from exporter.worker.model.model_kinds import Model
from exporter.worker.model.replay import refuse_work
from exporter.worker.model.source_loader import load_model
from exporter.worker.model.weight_files import find_names, read_weights
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import call_model, list_named_leaves
from exporter.worker.reference.operator_calls import FunctionMode
from exporter.worker.reference.review import SelectionRecorder, describe_selection
from exporter.worker.torch_private.capture import patch_capture

#: Seconds after which no further size is tried.
_SECONDS = 90.0
#: Elements of the largest input, and the largest size, that are tried.
_ELEMENTS, _LARGEST = 1 << 20, 1 << 11
#: Differences of sizes: powers of two, and the strides of images.
_STEPS = (1, 2, 4, 8, 16, 32, 64)
#: Smallest sizes that are tried, in steps of an axis.
_SMALLEST = (1, 2, 3, *(n << k for k in range(1, 10) for n in (2, 3)))
_BATCH = "batch"
#: Names of inputs with old tokens, such as `past_key_values_0_1` and `k_cache`.
_CACHE = re.compile(r"past|cache|(^|_)(kv|keys?|values?|memory)(_|$)")
_PATH_STEP = re.compile(r"\.(\w+)|\['([^']*)'\]|\[(\d+)\]")
#: The largest difference of two runs of one model on a machine, relative to the largest value.
_CLOSE = 1e-4

Shapes = tuple[tuple[int, ...], ...]
#: An input and a dimension of it, by index.
_Member = tuple[int, int]


@dataclass(slots=True)
class _Unit:
    """Dimensions that have one size."""

    members: list[_Member]
    size: int
    name: str = ""
    step: int = 0
    """The distance of possible sizes; 0 if the size is fixed."""
    partners: list[_Unit] = field(default_factory=list)
    """Units that grow with this one, such as the mask of old and new tokens."""
    limits: dict[str, int] = field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        return self.name == _BATCH or all(dim == 0 for _, dim in self.members)


def probe(
    spec: ModelSpec, root: str, observation: Observation, *, is_of_script: bool = False
) -> ProbeResult:
    """Return the facts about a model with fixed sizes in its entry.

    `is_of_script`: The source is code of the script, which must not work when it is imported.
    """
    torch.manual_seed(0)
    try:
        with refuse_work(Path(root)) if is_of_script else nullcontext():
            model = load_model(spec, Path(root))
        with torch.no_grad():
            facts = _compare(model, spec, Path(root), observation)
            if facts.difference:
                return facts
            labels = _read_returned_names(model)
            model = wrap_with_call_objects(model, spec, Path(root))
            return _Prober(model, spec, root, observation).probe(facts, labels)
    except Failure as failure:
        return ProbeResult(problem=redact(str(failure), limit=400))
    except Exception as error:  # code of the model runs
        return ProbeResult(problem=redact(f"{type(error).__name__}: {error}", limit=400))


def measure_source(spec: ModelSpec, root: str) -> dict[str, Any]:
    """Return the interface of a model that generates, the usual `call` of another, or a problem."""
    try:
        model: Any = load_model(spec, Path(root))
        if hasattr(model, "can_generate") and not model.can_generate():
            return {"call": describe_usual_call(type(model), model.config).model_dump(mode="json")}
        with torch.no_grad():
            measured = measure_interface(model, spec)
        return measured | {"no_encoder": redact(measured["no_encoder"], limit=400)}
    except (Failure, ExporterError) as failure:
        return {"problem": redact(str(failure), limit=400)}


def _compare(model: Model, spec: ModelSpec, root: Path, observation: Observation) -> ProbeResult:
    """Set the observed weights, and return the difference between observed and computed outputs."""
    if not observation.sample:  # `add` observed no call
        return _set_weights(model, observation.weights)
    state = torch.load(observation.state, weights_only=True, mmap=True)
    file = ""
    names = StateNames()
    is_drawn = False
    notes = list[str]()
    unknown = list[str]()
    if not _is_equal(read_state(model), state):
        tables = [
            (path, *each) for path in reversed(observation.files) for each in _read_tables(path)
        ]
        known = {path for path, *_ in tables}
        unknown = [path for path in observation.files if path not in known]
        origins = (
            (path, each)
            for path, key, table in tables
            for each in find_names(table, state, key)
            if _is_equal(each.rename(table), state)
        )
        has_part = any(
            not _list_marks(state).isdisjoint(_list_marks(table)) for *_, table in tables
        )
        file, names = next(origins, (file, names))
        # If nothing was loaded, the script's model is a new one, too.
        is_new = not (observation.is_loaded or observation.has_trained)
        is_drawn = is_new and not (file or has_part)
        if is_drawn:
            notes.append("the weights are initial values: no file has those of the script")
        if observation.is_trained and not file:
            file = observation.state
        if file or is_drawn:
            model.load_state_dict(state, strict=False)
        if not _is_equal(read_state(model), state):
            message = "other weights than the script's, which no file has; save the model's "
            message += "state_dict to a file of the project, and load it in the script"
            if unknown:
                names_read = ", ".join(sorted({Path(each).name for each in unknown}))
                message += f" ({names_read}: read or written by the script, but no state_dict)"
            return ProbeResult(difference=message)
    expected = torch.load(observation.sample, weights_only=True)
    called = wrap_with_call_objects(model, spec, root)
    # PyTorch's fused path of transformers returns other values at padded positions. Other threads
    # add in another order, which a deep net with drawn weights makes larger than the limit.
    problems = []
    threads = dict.fromkeys((torch.get_num_threads(), expected["threads"]))
    for count, is_fused in product(threads, (False, True)):
        try:
            with _use_threads(count):
                flipped = _compare_outputs(called, spec, expected, is_fused=is_fused)
        except _Difference as difference:
            problems.append(str(difference))
            continue
        if flipped:
            notes.append(f"{flipped} elements of selections differ from the script's run")
        return ProbeResult(weights=file, weights_names=names, is_drawn=is_drawn, notes=tuple(notes))
    text = f"other outputs than the script's for the same inputs: {problems[0]}"
    if _is_unstable(called, spec, expected):
        text += "; its values also change with the number of threads, as rows of equal scores "
        text += "exchange their places: record it with trained weights"
    return ProbeResult(difference=text)


def _is_unstable(model: Model, spec: ModelSpec, expected: dict[str, Any]) -> bool:
    """Return whether the outputs of a model depend on the number of threads."""
    inputs = {item.name: each for item, each in zip(spec.inputs, expected["inputs"], strict=True)}
    call = build_tensor_call(spec, inputs)
    threads = torch.get_num_threads()
    runs = []
    for count in (threads, 1 if threads > 1 else 2):
        with _use_threads(count):
            torch.manual_seed(0)
            runs.append(list(list_tensors(model(*call.args, **call.kwargs), copies=True)))
    return len(runs[0]) != len(runs[1]) or any(map(_differs, *runs))


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
    """Compute with so many threads inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _set_weights(model: Model, path: str) -> ProbeResult:
    """Set the weights that the user named, and return how the file names them, or a problem."""
    if not path:
        return ProbeResult()
    expected = read_state(model)
    tables = list(_read_tables(path))
    problem = ""
    for key, table in tables:
        for names in find_names(table, expected, key):
            try:
                model.load_state_dict(names.rename(table), strict=False)
            except RuntimeError as error:
                problem = problem or str(error)
            else:
                return ProbeResult(weights=path, weights_names=names)
    name = Path(path).name
    if not problem and tables:
        _, largest = max(tables, key=lambda pair: len(pair[1]))
        words = join_names([*largest]), join_names([*expected])
        problem = f"it has {words[0]}, and the model {words[1]}"
    problem = problem or "it has no tensors by name; save `model.state_dict()`"
    return ProbeResult(problem=redact(f"the weights of {name} do not fit: {problem}", limit=400))


class _Difference(Exception):
    """The outputs are not those of the script; the text says where."""


def _compare_outputs(
    model: Model, spec: ModelSpec, expected: dict[str, Any], *, is_fused: bool
) -> int:
    """Return the selections that differ from the script's among values equal within rounding.

    Raises:
        _Difference: If anything else differs.
    """
    inputs = {item.name: each for item, each in zip(spec.inputs, expected["inputs"], strict=True)}
    call = build_tensor_call(spec, inputs)
    torch.backends.mha.set_fastpath_enabled(is_fused)
    torch.manual_seed(0)
    recorder = SelectionRecorder()
    with recorder.watch():
        outputs = list(list_tensors(model(*call.args, **call.kwargs), copies=False))
    if len(outputs) != len(expected["outputs"]):
        raise _Difference(f"{len(outputs)} outputs, and the script {len(expected['outputs'])}")
    flipped = 0
    for index, (output, of_script) in enumerate(zip(outputs, expected["outputs"], strict=True)):
        rebuilt, observed = to_numpy(output), to_numpy(of_script)
        is_float = of_script.is_floating_point() or of_script.is_complex()
        limit = None
        if is_float:
            atol = _CLOSE * measure_scale(to_float64(rebuilt))
            limit = Limit(atol=atol, reason=f"{_CLOSE:g} of its largest value")
        comparison = compare_arrays(observed, rebuilt, limit, rebuilt)
        if not comparison.problem:
            continue
        choice = recorder.find(output)
        selection = describe_selection(*choice, []) if choice else None
        if selection:
            margin = _CLOSE * measure_scale(to_float64(selection.keys))
            selection = replace(selection, margin=margin)
        if selection is None or not are_ties(observed, rebuilt, selection):
            text = comparison.problem.replace("(file ", "(script ").replace("PyTorch", "entry")
            raise _Difference(f"output {index}: {text}")
        flipped += int((rebuilt != observed).sum())
    return flipped


def _is_equal(state: Mapping[str, Any], other: Mapping[str, torch.Tensor]) -> bool:
    """Return whether two states have the same names and values."""
    return state.keys() == other.keys() and all(
        torch.equal(value.to(other[key].dtype), other[key]) for key, value in state.items()
    )


def _read_tables(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables of a file of weights with their keys; the file itself has no key."""
    content = None
    with suppress(Exception):  # the file has no tensors
        content = read_weights(Path(path))
    tables = {"": content, **(content if isinstance(content, Mapping) else {})}
    for key, table in tables.items():
        if isinstance(table, Mapping) and all(isinstance(each, str) for each in table):
            yield key, table


def _list_marks(table: Mapping[str, Any]) -> set[tuple[float, ...]]:
    """Return the first numbers of each weight that is not constant."""
    tensors = (each for each in table.values() if isinstance(each, torch.Tensor))
    first = (tuple(each.flatten()[:8].tolist()) for each in tensors if each.is_floating_point())
    return {each for each in first if len(set(each)) > 4}


def _differs(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether floats differ by more than two runs of one model do."""
    if value.shape != other.shape or value.dtype != other.dtype:
        return True
    array = to_numpy(value)
    limit = Limit(atol=_CLOSE * measure_scale(to_float64(array)), reason="two runs")
    is_float = value.is_floating_point()
    return is_float and bool(compare_arrays(to_numpy(other), array, limit, array).problem)


class _Prober:
    """Runs one model; a result for the same sizes is computed once."""

    def __init__(self, model: Model, spec: ModelSpec, root: str, observation: Observation) -> None:
        self._model = model
        self._spec = spec
        self._root = Path(root)
        self._observation = observation
        self._base: Shapes = tuple(tuple(map(int, item.shape)) for item in spec.inputs)
        self._lengths = {
            index: (item, dim)
            for index, tensor in enumerate(observation.tensors)
            for item, shape in enumerate(self._base)
            for dim, size in enumerate(shape)
            if item != index and tensor.has_lengths_up_to(size)
        }
        """Inputs with lengths, by index, and the dimension that they are lengths of."""
        self._results: dict[Shapes, Shapes | None] = {}
        self._end = time.monotonic() + _SECONDS
        self._notes: list[str] = []

    def probe(self, facts: ProbeResult, labels: Mapping[str, str]) -> ProbeResult:
        """Return all facts, with those of the comparison.

        `labels`: The variables that `forward` returns, by their paths.

        Raises:
            Failure: If the model does not run at the observed sizes.
        """
        rows = self._measure_rows()
        torch.manual_seed(0)
        returned = self._call(self._base)
        register_output_classes(returned)
        leaves = list_named_leaves(returned, self._spec)
        others = [path for path, leaf in leaves if not isinstance(leaf, torch.Tensor)]
        if others or not leaves:
            kind = "no output" if not leaves else f"an output that is no tensor, {others[0]}"
            return ProbeResult(problem=f"the model returns {kind}")
        if problem := self._find_export_branch(leaves):
            return ProbeResult(problem=problem)
        self._ranks = [leaf.dim() for _, leaf in leaves]
        self._results[self._base] = tuple(tuple(leaf.shape) for _, leaf in leaves)
        units = self._find_units()
        self._name_units(units)
        inputs = [list[Dim](shape) for shape in self._base]
        axes: dict[str, dict[str, Any]] = {}
        tables = ((unit, dict[str, Any](unit.limits)) for unit in units)
        for unit, table in chain(tables, self._derive_partners(units)):
            for item, dim in unit.members:
                inputs[item][dim] = unit.name
            axes[unit.name] = table
        names = [_name_output(path, labels) for path, _ in leaves]
        changing = [unit for unit in units if unit.step]
        outputs = self._fit_outputs(leaves, names, changing, axes)
        if time.monotonic() > self._end:
            self._notes.append("the model is slow, so not all sizes were tried")
        return facts.model_copy(
            update={
                "inputs": tuple(map(tuple, inputs)),
                "outputs": outputs,
                "axes": axes,
                "rows": rows,
                "notes": (*facts.notes, *self._notes),
            }
        )

    def _find_export_branch(self, leaves: Sequence[tuple[str, Any]]) -> str:
        """Return the problem of a model that returns something else in an export."""
        if self._observation.kind != "export":
            return ""
        exported = list[tuple[str, Any]]()
        with patch_capture(dynamic=False), suppress(Exception):  # it may only run in an export
            torch.manual_seed(0)
            exported += list_named_leaves(self._call(self._base), self._spec)
        if not exported:
            return ""
        problem = ""
        if len(exported) != len(leaves):
            problem = f"{pluralize(len(leaves), 'output')}, and {len(exported)} in an export"
        elif any(map(_differs, (leaf for _, leaf in leaves), (leaf for _, leaf in exported))):
            problem = "other values in an export"
        fix = "export a module whose `forward` computes the exported outputs in both cases, such "
        fix += "as `self.net(x)[0]` or `self.net(x).sigmoid()`"
        cause = "where `torch.onnx.is_in_onnx_export()` is true"
        return f"the model returns {problem}, {cause}; {fix}" if problem else ""

    def _call(self, shapes: Shapes, seed: int = 0) -> Any:
        items = [
            item.model_copy(update={"shape": shape})
            for item, shape in zip(self._spec.inputs, shapes, strict=True)
        ]
        spec = self._spec.model_copy(update={"inputs": tuple(items)})
        chosen = InputSet(name="declared", kind="declared", sizes={}, seed=seed)
        inputs = draw_inputs(spec, chosen, self._root)
        for lengths, (item, dim) in self._lengths.items():
            shape, dtype = shapes[lengths], inputs[spec.inputs[lengths].name].dtype
            generator = torch.Generator().manual_seed(seed)
            drawn = draw_lengths(shape, shapes[item][dim], generator).to(dtype)
            inputs[spec.inputs[lengths].name] = drawn
        return call_model(self._model, spec, inputs)

    def _list_leaves(self, shapes: Shapes, seed: int = 0) -> list[tuple[str, Any]]:
        leaves = list_named_leaves(self._call(shapes, seed), self._spec)
        if self._ranks != [leaf.dim() for _, leaf in leaves]:
            raise ValueError("other outputs than at the observed sizes")
        return leaves

    def _run(self, shapes: Shapes) -> Shapes | None:
        """Return the shapes of the outputs, or None if the model does not run at these sizes."""
        if shapes not in self._results:
            if time.monotonic() > self._end:
                return None
            self._results[shapes] = None
            try:
                leaves = self._list_leaves(shapes)
                self._results[shapes] = tuple(tuple(leaf.shape) for _, leaf in leaves)
            except Exception:  # any error of the model at a size that nobody promised
                return None
        return self._results[shapes]

    def _resize(self, *changes: tuple[_Unit, int]) -> Shapes:
        """Return the shapes with other sizes of some units and of their partners."""
        shapes = [list(shape) for shape in self._base]
        for unit, size in changes:
            for partner in unit.partners:
                for item, dim in partner.members:
                    shapes[item][dim] += size - unit.size
            for item, dim in unit.members:
                shapes[item][dim] = size
        return tuple(map(tuple, shapes))

    def _works(self, *changes: tuple[_Unit, int]) -> bool:
        return self._run(self._resize(*changes)) is not None

    def _measure_rows(self) -> dict[str, int]:
        """Return the rows of the embeddings whose indices are inputs."""
        rows: dict[str, int] = {}
        chosen = InputSet(name="declared", kind="declared", sizes={})
        tensors = draw_inputs(self._spec, chosen, self._root)
        indices = {
            name: tensor
            for name, tensor in tensors.items()
            if not (tensor.is_floating_point() or tensor.dtype is torch.bool)
        }
        if not indices:
            return rows
        calls: list[tuple[torch.Tensor, int]] = []

        def record(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if func in (torch.nn.functional.embedding, torch.nn.functional.embedding_bag):
                values = dict(zip(("input", "weight"), args, strict=False)) | kwargs
                calls.append((values["input"].detach().clone(), values["weight"].shape[0]))
            return func(*args, **kwargs)

        with FunctionMode(record):
            call_model(self._model, self._spec, tensors)
        for name, tensor in indices.items():
            counts = [
                count
                for used, count in calls
                if used.numel() == tensor.numel()
                and torch.equal(used.flatten().long(), tensor.flatten().long())
            ]
            if counts:
                rows[name] = min(counts)
        return rows

    def _find_units(self) -> list[_Unit]:
        """Return the declared axes, and the other dimensions that can have another size."""
        named: dict[str, list[_Member]] = {}
        free: dict[tuple[int, int], list[_Member]] = {}
        is_free = self._observation.kind != "export"
        pairs = zip(self._base, self._observation.tensors, strict=True)
        for item, (shape, tensor) in enumerate(pairs):
            for dim, size in enumerate(shape):
                declared = tensor.dynamic.get(dim)
                if name := self._observation.name_input_axis(item, dim):
                    named.setdefault(name, []).append((item, dim))
                elif declared or is_free:
                    free.setdefault((dim, size), []).append((item, dim))
        units: list[_Unit] = []
        for name, members in named.items():
            sizes = {self._base[item][dim] for item, dim in members}
            unit = _Unit(members, size=min(sizes), name=name)
            self._find_step(unit, units)
            if not unit.step:
                self._notes.append(f"axis {name}: another size gave an error or other outputs")
            units.append(unit)
        pending = [_Unit(members, size) for (_, size), members in free.items()]
        pending = [part for unit in pending for part in self._split(unit)]
        for unit in list(pending):
            if all(unit not in each.partners for each in units):
                self._find_step(unit, [each for each in pending if each is not unit])
        units += [
            unit
            for unit in pending
            if unit.step and all(unit not in each.partners for each in (*units, *pending))
        ]
        for unit in units:
            _join_equal_partners(unit, units)
            if unit.step:
                self._find_limits(unit)
        self._raise_smallest_sizes([each for each in units if each.step and not each.partners])
        return units

    def _split(self, unit: _Unit) -> list[_Unit]:
        """Divide a unit into its dimensions if each can change alone.

        Dimensions of size 1 stay together, because a larger one may only work by broadcasting.
        """
        parts = [_Unit([member], unit.size) for member in unit.members]
        if len(parts) == 1:
            return parts
        are_free = [self._works((part, part.size + 1)) for part in parts]
        is_joint = any(self._works((unit, unit.size + step)) for step in _STEPS)
        is_apart = all(are_free) and unit.size > 1 if is_joint else any(are_free)
        return parts if is_apart else [unit]

    def _find_step(self, unit: _Unit, others: Sequence[_Unit]) -> None:
        """Set the step of a unit, and the units that must grow with it."""
        candidates: list[list[_Unit]] = [[]]
        if not unit.name:
            candidates += [[each] for each in others if not each.step and not each.name]
            candidates += [[a, b] for a, b in combinations(others, 2) if not a.step and not b.step]
        for partners in candidates[:40]:
            unit.partners = partners
            for step in _STEPS if not partners else _STEPS[:1]:
                sizes = (unit.size + step, unit.size + 2 * step)
                if all(self._works((unit, size)) for size in sizes):
                    if unit.size % step == 0 or unit.name:
                        unit.step = step
                    else:
                        self._notes.append(f"sizes {unit.size} + n * {step} have no notation")
                    return
        unit.partners = []

    def _find_limits(self, unit: _Unit) -> None:
        """Set the smallest and the largest size."""
        step, size = unit.step, unit.size
        if step > 1:
            unit.limits["multiple_of"] = step
        smaller = [n for n in _SMALLEST if n * step < size]
        smallest = next((n * step for n in smaller if self._works((unit, n * step))), size)
        if smallest > step and not unit.partners:
            unit.limits["min"] = smallest
        good, bad = size + 2 * step, 0
        # Nothing limits a batch, and its size is the memory.
        end = 4 * size if unit.is_batch else _LARGEST
        while not bad and 2 * good <= end:
            tried = 2 * good // step * step
            shapes = self._resize((unit, tried))
            if max(map(prod, shapes)) > _ELEMENTS or time.monotonic() > self._end:
                return
            good, bad = (good, tried) if self._run(shapes) is None else (tried, 0)
        if not bad:
            return
        while bad - good > step:
            middle = max((good + bad) // 2 // step * step, good + step)
            good, bad = (middle, bad) if self._works((unit, middle)) else (good, middle)
        if time.monotonic() <= self._end:
            unit.limits["max"] = good

    def _raise_smallest_sizes(self, units: Sequence[_Unit]) -> None:
        """Set larger smallest sizes if the model does not run at all of them at once.

        `topk(10)` of the pixels of an image limits the product of its height and width.
        """
        smallest = [unit.limits.get("min", unit.step) for unit in units]
        for count in (0, *_SMALLEST, _LARGEST):
            sizes = [
                low if unit.is_batch else min(max(low, count * unit.step), unit.size)
                for unit, low in zip(units, smallest, strict=True)
            ]
            if self._works(*zip(units, sizes, strict=True)):
                for unit, low, size in zip(units, smallest, sizes, strict=True):
                    if size > low:
                        unit.limits["min"] = size
                return

    def _name_units(self, units: Sequence[_Unit]) -> None:
        used = {unit.name for unit in units if unit.name}
        for unit in units:
            if not unit.name:
                unit.name = self._choose_name(unit.members, used)
                used.add(unit.name)

    def _choose_name(self, members: Sequence[_Member], used: set[str]) -> str:
        item, dim = members[0]
        spec, rank = self._spec.inputs[item], len(self._base[item])
        usual = {0: _BATCH}
        if any(_CACHE.search(each.name.casefold()) for each in self._spec.inputs):
            is_cache = _CACHE.search(spec.name.casefold())
            usual[max(rank - 2, 1)] = "past" if is_cache else "length"
        elif "mask" not in spec.name.casefold() and "float" in spec.dtype and rank in (4, 5):
            usual |= dict(zip(range(rank - 1, 1, -1), ("width", "height", "depth"), strict=False))
        elif rank in (2, 3):
            usual[1] = "length"
        name = usual.get(dim, f"{spec.name}_{dim}")
        name = name if name not in used else f"{spec.name}_{dim}"
        return name if name not in used else f"{name}_{len(used)}"

    def _derive_partners(self, units: Sequence[_Unit]) -> Iterator[tuple[_Unit, dict[str, Any]]]:
        """Yield the units that are sums of others."""
        partners = {id(p): p for unit in units for p in unit.partners}.values()
        for partner in partners:
            owners = [unit for unit in units if partner in unit.partners]
            rest = partner.size - sum(unit.size for unit in owners)
            names: list[Dim] = [unit.name for unit in owners]
            partner.name = self._choose_name(partner.members, {unit.name for unit in units})
            if rest < 0:
                yield partner, {"difference": [*names, -rest]}
            else:
                yield partner, {"sum": [*names, rest] if rest or len(names) < 2 else names}

    def _fit_outputs(
        self,
        leaves: Sequence[tuple[str, Any]],
        names: Sequence[str],
        units: Sequence[_Unit],
        axes: dict[str, Any],
    ) -> tuple[ProbedOutput, ...]:
        base = {unit.name: unit.size for unit in units}
        samples = [
            ({**base, **{unit.name: size for unit, size in changes}}, shapes)
            for changes in _list_changes(units)
            if (shapes := self._run(self._resize(*changes))) is not None
        ]
        try:
            other = self._list_leaves(self._base, seed=1)
        except Exception:  # other values may be invalid
            other = list(leaves)
        outputs = []
        for index, ((_, leaf), name) in enumerate(zip(leaves, names, strict=True)):
            shape: list[Dim] = []
            for dim, size in enumerate(leaf.shape):
                values = [(sizes, shapes[index][dim]) for sizes, shapes in samples]
                is_fixed = other[index][1].shape[dim] == size
                table = fit_size(values) if is_fixed else {}
                promised = self._observation.name_output_axis(index, dim)
                declared = self._observation.outputs[index : index + 1]
                if isinstance(table, int) and any(dim in each.dynamic for each in declared):
                    table = {}  # the script declares another size
                if isinstance(table, str) and promised not in ("", table, *base):
                    table = {"sum": [table, 0]}  # the script's name of an equal size
                if isinstance(table, dict):
                    known = (key for key, each in axes.items() if table and each == table)
                    number = f"output_{index}" if len(leaves) > 1 else "output"
                    label = "" if promised in base else promised
                    label = label or next(known, f"{name or number}_{dim}")
                    if label in axes and axes[label] != table:
                        label = f"{name or number}_{dim}"
                    axes[label] = table
                    if not table:
                        self._notes.append(f"axis {label}: no relation to the inputs was measured")
                    table = label
                shape.append(table)
            dtype = str(leaf.dtype).removeprefix("torch.")
            outputs.append(ProbedOutput(name=name, dtype=dtype, shape=tuple(shape)))
        return tuple(outputs)


def _read_returned_names(model: Any) -> dict[str, str]:
    """Return the variables that each `return` of `forward` names, by their paths: `[0]`, or "".

    A parameter is no name of an output.
    """
    try:
        text = textwrap.dedent(inspect.getsource(type(model).forward))
        (function,) = ast.parse(text).body
    except (OSError, TypeError, ValueError, SyntaxError, AttributeError):
        return {}
    if not isinstance(function, ast.FunctionDef):
        return {}
    tables = []
    pending: list[ast.AST] = list(function.body)
    while pending:
        match pending.pop():
            case ast.Return(value=ast.Tuple(elts=items) | ast.List(elts=items)):
                pairs = [(f"[{index}]", item) for index, item in enumerate(items)]
                tables.append({path: i.id for path, i in pairs if isinstance(i, ast.Name)})
            case ast.Return(value=ast.Name(id=name)):
                tables.append({"": name})
            case ast.Return():
                tables.append({})
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                pass
            case node:
                pending += ast.iter_child_nodes(node)
    common = set.intersection(*(set(table.items()) for table in tables)) if tables else set()
    return {path: name for path, name in common if name not in list_parameters(model)}


def _name_output(path: str, labels: Mapping[str, str]) -> str:
    """Return the name of an output from its path, such as `.logits` or `[1]['aux']`, or "".

    Keys and fields are names; without them, the returned variable is.
    """
    steps = [next(filter(None, each)) for each in _PATH_STEP.findall(path)]
    first = next((at for at, step in enumerate(steps) if not step.isdecimal()), None)
    if first is not None:
        words = steps[first:]
    elif label := labels.get(path[: path.find("]") + 1]) or labels.get(""):
        words = [label, *steps[0 if "" in labels else 1 :]]
    else:
        return ""
    name = "_".join(words)
    return name if name.isidentifier() else ""


def _join_equal_partners(unit: _Unit, units: Sequence[_Unit]) -> None:
    """Make partners with the size of a unit a part of it, such as the batch of a memory."""
    if any(partner.size != unit.size for partner in unit.partners):
        return
    if any(partner in each.partners for partner in unit.partners for each in units if each != unit):
        return
    members = [*unit.members, *(member for each in unit.partners for member in each.members)]
    unit.members = sorted(members, key=lambda member: (member[1], member[0]))
    unit.partners = []


def _list_changes(units: Sequence[_Unit]) -> Iterator[tuple[tuple[_Unit, int], ...]]:
    """Yield changes of sizes that show how outputs depend on each unit."""
    yield ()
    for unit in units:
        smallest = unit.limits.get("min", unit.step)
        sizes = {unit.size + n * unit.step for n in (1, 2, 3, 5, 8)} | {smallest}
        end = unit.limits.get("max", max(sizes))
        yield from (((unit, size),) for size in sorted(sizes) if size <= end)
    yield tuple((unit, unit.size + (n + 1) * unit.step) for n, unit in enumerate(units))


def fit_size(samples: Sequence[tuple[dict[str, int], int]]) -> Dim | dict[str, Any]:
    """Return the size of an output from samples of the sizes of axes.

    Returns:
        A number, the name of an axis, a table of the manifest for a derived axis, or an empty
        table if nothing fits.
    """
    base, first = samples[0]
    if all(size == first for _, size in samples):
        return first
    alone = [
        (next(iter(changed)), size)
        for sizes, size in samples
        if len(changed := {name for name in sizes if sizes[name] != base[name]}) == 1
    ]
    names = [name for name in base if any(n == name and size != first for n, size in alone)]
    if len(names) == 1 and all(sizes[names[0]] == size for sizes, size in samples):
        return names[0]
    for rule in _list_rules(names, base, first):
        if all(rule.compute(sizes) == size for sizes, size in samples):
            if rule.kind != "window":
                return {rule.kind: [*rule.operands]}
            table: dict[str, Any] = {"of": rule.operands[0], "stride": rule.stride}
            if rule.padding or rule.kernel != rule.stride:
                table["kernel"] = rule.kernel
            return table | ({"padding": rule.padding} if rule.padding else {})
    return {}


def _list_rules(names: Sequence[str], base: Mapping[str, int], first: int) -> Iterator[SizeRule]:
    """Yield the rules that give the size `first` for the sizes `base`; the simplest first."""
    if len(names) == 1:
        size = base[names[0]]
        rest = first - size
        kind: Literal["sum", "difference"] = "sum" if rest > 0 else "difference"
        yield SizeRule(kind=kind, operands=(names[0], abs(rest)))
        if size and first % size == 0:
            yield SizeRule(kind="product", operands=(names[0], first // size))
        for stride in range(2, 65):
            yield SizeRule(kind="window", operands=(names[0],), stride=stride, kernel=stride)
        for stride in range(1, 65):
            # size = (n + margin) // stride + 1, with the margin of a window
            low = (first - 1) * stride - size
            for margin in range(low, low + stride):
                padding = max(0, (margin + 2) // 2)
                window = {"stride": stride, "kernel": 2 * padding - margin, "padding": padding}
                yield SizeRule(kind="window", operands=(names[0],), **window)
    elif names:
        sizes = [base[name] for name in names]
        yield SizeRule(kind="sum", operands=tuple(names))
        if (rest := first - sum(sizes)) > 0:
            yield SizeRule(kind="sum", operands=(*names, rest))
        if all(sizes) and first % prod(sizes) == 0:
            factor = first // prod(sizes)
            yield SizeRule(kind="product", operands=(*names, *([factor] if factor > 1 else ())))
