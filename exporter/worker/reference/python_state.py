"""The Python values around a model that a call may change."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

from exporter.core.check_table import HISTORY_PREFIX, STATEFUL_PREFIX, WEIGHTS_PREFIX
from exporter.core.errors import ExporterError
from exporter.core.import_object import search_project
from exporter.core.system import IS_LINUX
from exporter.core.text import join_names
from exporter.manifest import ModelSpec
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.records.record import Stage, Status
from exporter.worker.inputs.input_sets import InputSet
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.model_kinds import Model, is_compiled
from exporter.worker.model.source_loader import digest_weights, load_model
from exporter.worker.process.failure import Failure
from exporter.worker.process.fork_call import can_fork, compute_in_fork
from exporter.worker.process.setup import keep_one_thread
from exporter.worker.reference.eager_run import (
    BufferSnapshot,
    Outputs,
    Returned,
    run_declared_inputs,
    run_model,
)
from exporter.worker.reference.noise import describe_difference
from exporter.worker.torch_private.internals import count_writes

#: Names in one message.
_MAX_NAMES = 3
#: Packages whose classes and modules do not keep values of one model.
_LIBRARIES = frozenset({"torch", "builtins", "numpy", "exporter"})


class PythonState:
    """The plain attributes of a model's modules, and the values of their classes and files.

    A changed value is often a table that does not depend on the input. So the caller has to
    compare outputs.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        # References to the values prevent that a new object gets the identity of an old one.
        self._values = dict(_list_values(model))
        self._marks = {name: _mark_value(value) for name, value in self._values.items()}

    def list_changes(self) -> tuple[str, ...]:
        """Return the names of the values that were set, removed or mutated since then."""
        current = dict(_list_values(self._model))
        names = dict.fromkeys((*self._values, *current))
        return tuple(
            name
            for name in names
            if name not in current or self._marks.get(name) != _mark_value(current[name])
        )


def _list_values(model: Model) -> Iterator[tuple[str, Any]]:
    classes: dict[type, None] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in vars(module).items():
            if not name.startswith("_"):  # torch's own: parameters, buffers, modules and hooks
                yield f"the attribute '{prefix}{name}'", value
        classes.update(dict.fromkeys(type(module).__mro__))
    project_classes = [
        each for each in classes if each.__module__.partition(".")[0] not in _LIBRARIES
    ]
    for each in project_classes:
        for name, value in vars(each).items():
            if not name.startswith("__"):
                yield f"the class attribute '{each.__qualname__}.{name}'", value
    for file in dict.fromkeys(each.__module__ for each in project_classes):
        for name, value in vars(sys.modules.get(file, ModuleType(file))).items():
            if not name.startswith("__") and not isinstance(value, ModuleType | type):
                yield f"the global variable '{name}' of {file}", value


def _mark_value(value: Any) -> tuple[Any, ...]:
    """Return a key that changes when the value is replaced or mutated."""
    if isinstance(value, torch.Tensor):
        return (id(value), count_writes(value))
    if isinstance(value, dict):
        return (id(value), *(id(item) for pair in value.items() for item in pair))
    if isinstance(value, list | set | tuple):
        return (id(value), *(id(item) for item in value))
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _has_content(cell)]
        return (id(value), *(_mark_value(item) for item in cells if not callable(item)))
    if hasattr(type(value), "cache_info"):  # a function with `functools.cache`
        return (id(value), value.cache_info().currsize)
    return (id(value),)


def _has_content(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # an empty cell
        return False


#: The attributes of every module. Buffers and parameters have their own snapshot or do not change.
_OWN_NAMES = frozenset(vars(torch.nn.Module())) - {"training"}


class ModelSnapshot:
    """The buffers and the plain attributes of a model."""

    def __init__(self, model: Model) -> None:
        self._buffers = BufferSnapshot(model)
        # The attributes of a compiled module are not in Python.
        plain = (each for each in model.modules() if not is_compiled(each))
        self._attributes = [_AttributeTable(vars(module)) for module in plain]

    def restore(self) -> None:
        self._buffers.restore()
        for table in self._attributes:
            table.restore()


@contextlib.contextmanager
def lend_model(model: Model, call: str) -> Iterator[None]:
    """Restore the buffers and attributes of a model that a function of the project got.

    Raises:
        Failure: Stage `source`, if the function changed weights, which the file would have then.
    """
    weights, state = digest_weights(model), ModelSnapshot(model)
    try:
        yield
    finally:
        state.restore()
    after = digest_weights(model)
    if changed := [name for name, digest in weights.items() if after.get(name) != digest]:
        problem = f"changes {join_names(changed, _MAX_NAMES)} of the model; use a copy of the model"
        raise Failure(Stage.SOURCE, f"{call}: {problem}", status=Status.FAIL)


class _AttributeTable:
    """The attributes of one module: the objects, and the items of lists, dicts and sets."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table
        self._values = {name: value for name, value in table.items() if name not in _OWN_NAMES}
        self._items = [
            (value, value.copy())
            for value in self._values.values()
            if type(value) in (list, dict, set)
        ]

    def restore(self) -> None:
        for name in self._table.keys() - self._values.keys() - _OWN_NAMES:
            del self._table[name]
        self._table.update(self._values)
        for value, items in self._items:
            value.clear()
            if isinstance(value, list):
                value.extend(items)
            else:
                value.update(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversedCalls:
    """The result of the declared call after other calls.

    A file keeps nothing between calls. A model whose weights change in a call, or whose outputs
    depend on its earlier inputs, has no right file. Buffers may change if no output depends on
    them.
    """

    problem: str = ""
    """Why there are no such calls."""
    outputs: Outputs = ()
    error: str = ""
    """The error of the declared call."""
    changed_weights: tuple[str, ...] = ()
    changed_values: tuple[str, ...] = ()

    @property
    def unproved(self) -> tuple[str, ...]:
        """The promise that these calls would prove, if there are none."""
        return (f"the same outputs after other calls: {self.problem}",) if self.problem else ()

    def describe_change(self, spec: ModelSpec, outputs: Outputs) -> str:
        """Return how earlier calls change weights or outputs, or "" if they do not.

        `outputs`: The outputs of a first call with the declared inputs.
        """
        if self.problem:
            return ""
        if self.error:
            difference = f"the declared inputs fail after other inputs: {self.error}"
        else:
            difference = describe_difference(spec, outputs, self.outputs)
        suffix = f": {difference}" if difference else ""
        if self.changed_weights:
            return f"{WEIGHTS_PREFIX} {join_names(self.changed_weights, _MAX_NAMES)}{suffix}"
        if not difference:
            return ""
        return f"{describe_state((), self.changed_values)}{suffix}"


def describe_state(buffers: Sequence[str], values: Sequence[str]) -> str:
    """Return the begin of a sentence about a model that keeps state in buffers or in values."""
    if buffers:
        return f"{STATEFUL_PREFIX} ({join_names(buffers, _MAX_NAMES)})"
    names = join_names(values, _MAX_NAMES)
    return f"{HISTORY_PREFIX}{f', which change {names}' if names else ''}"


def call_in_reverse(
    model: Model, spec: ModelSpec, root: Path, sets: Sequence[InputSet]
) -> ReversedCalls:
    """Call a copy of the model with other inputs, then with the declared ones.

    The copy is a fork. Without the parts of Linux, a new process builds the model again.
    """
    if not IS_LINUX:
        result = _call_in_process(spec, root, sets)
    elif can_fork():
        result = compute_in_fork(lambda: _call_model(model, spec, root, sets))
    else:
        result = "the process of the model has threads or uses a GPU"
    if result is None or isinstance(result, str):
        return ReversedCalls(problem=result or "the process of these calls ended early")
    outputs, error, weights, values = result
    return ReversedCalls(
        outputs=tuple(outputs),
        error=error,
        changed_weights=tuple(weights),
        changed_values=tuple(values),
    )


def _call_in_process(spec: ModelSpec, root: Path, sets: Sequence[InputSet]) -> Any:
    function = f"{__name__}:write_reversed_calls"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "result.pt"
        arguments = {"spec": spec, "root": root.resolve(), "sets": sets, "target": target}
        try:
            call_in_child(function, arguments, bool, None)
        except (ChildFailure, ExporterError, OSError) as error:
            return f"the process of these calls failed: {error}"
        return torch.load(target)


def write_reversed_calls(
    spec: ModelSpec, root: Path, sets: tuple[InputSet, ...], target: Path
) -> bool:
    """Write the result of `_call_model` with a new build of the model, in a new process."""
    search_project(root)
    keep_one_thread()
    model = wrap_with_call_objects(load_model(spec, root), spec, root)
    torch.save(_call_model(model, spec, root, sets), target)
    return True


def _call_model(
    model: Model, spec: ModelSpec, root: Path, sets: Sequence[InputSet]
) -> tuple[list[Returned], str, list[str], list[str]]:
    weights, state = digest_weights(model), PythonState(model)
    declared, *others = sets
    inputs = draw_inputs(spec, declared, root)
    for resized in [chosen for chosen in others if chosen.kind == "axis"][-1:]:
        with contextlib.suppress(Failure):
            run_model(model, spec, draw_inputs(spec, resized, root))
    # Other values of all inputs, or of one if the model refuses all.
    joint, calls = dict(inputs), []
    for chosen in others:
        is_usual = chosen.factor == 1.0 and not chosen.increment and not chosen.special
        if chosen.kind == "values" and is_usual:
            with contextlib.suppress(Failure):
                calls.append(draw_inputs(spec, chosen, root))
                if chosen.changed_input in calls[-1]:
                    joint[chosen.changed_input] = calls[-1][chosen.changed_input]
    for other_inputs in (joint, *calls):
        with contextlib.suppress(Failure):
            run_model(model, spec, other_inputs)
            break
    values = state.list_changes()
    outputs: Outputs = ()
    error = ""
    try:
        outputs = run_declared_inputs(model, spec, inputs)
    except Failure as failure:
        error = failure.message
    after = digest_weights(model)
    written = [name for name in after if after[name] != weights.get(name)]
    changed = [name for name in written if name in weights and "buffer" not in name]
    values += tuple(name for name in written if "buffer" in name)
    # A subclass of tensors could not be read from the fork.
    plain = [
        [item.as_subclass(torch.Tensor) for item in output]
        if isinstance(output, list)
        else output.as_subclass(torch.Tensor)
        for output in outputs
    ]
    return plain, error, changed, list(values)
