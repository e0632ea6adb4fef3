"""The Python values around a model that a call may change."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
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
from exporter.worker.reference.kept_numbers import find_branch_on_number
from exporter.worker.reference.noise import describe_difference
from exporter.worker.reference.python_values import OWN_NAMES, list_values, mark_value

#: Names in one message.
_MAX_NAMES = 3


class PythonState:
    """The plain values that a model can reach: see `python_values`.

    A changed value is often a table that does not depend on the input. So the caller has to
    compare outputs.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        # References to the values prevent that a new object gets the identity of an old one.
        self._values = {each.name: each.value for each in list_values(model)}
        self._marks = {name: mark_value(value) for name, value in self._values.items()}

    def list_changes(self) -> tuple[str, ...]:
        """Return the names of the values that were set, removed or mutated since then."""
        current = {each.name: each.value for each in list_values(self._model)}
        changed = list[str]()
        for name in dict.fromkeys((*self._values, *current)):
            is_changed = name not in current or self._marks.get(name) != mark_value(current[name])
            # The name of a collection stands for its items.
            outer = (each.rstrip("'") + end for each in changed for end in "[.")
            if is_changed and not name.startswith(tuple(outer)):
                changed.append(name)
        return tuple(changed)


class ModelSnapshot:
    """The buffers of a model, and the plain values that it can reach: see `python_values`."""

    def __init__(self, model: Model) -> None:
        self._model, self._buffers = model, BufferSnapshot(model)
        # The attributes of a compiled module are not in Python.
        plain = (vars(each) for each in model.modules() if not is_compiled(each))
        self._tables = [
            (table, {name: table[name] for name in table if name not in OWN_NAMES})
            for table in plain
        ]
        self._values = list(list_values(model))
        self._items = [
            (each.value, each.value.copy(), mark_value(each.value))
            for each in self._values
            if type(each.value) in (list, dict, set)
        ]

    def restore(self) -> None:
        self._buffers.restore()
        for table, values in self._tables:
            for name in table.keys() - values.keys() - OWN_NAMES:
                del table[name]
            table.update(values)
        for value, items, mark in self._items:
            if mark_value(value) == mark:
                continue
            value.clear()
            if isinstance(value, list):
                value.extend(items)
            else:
                value.update(items)
        current = {each.name: each.value for each in list_values(self._model)}
        for each in self._values:
            if current.get(each.name) is not each.value:
                with contextlib.suppress(Exception):  # a class of the user raises any error
                    each.write(each.value)


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
    read_number: str = ""
    """The number that calls change and that a branch reads: see `kept_numbers`."""

    @property
    def unproved(self) -> tuple[str, ...]:
        """The promises that these calls do not prove."""
        if self.problem:
            return (f"the same outputs after other calls: {self.problem}",)
        return (self.read_number,) if self.read_number else ()

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
    outputs, error, weights, values, number = result
    return ReversedCalls(
        outputs=tuple(outputs),
        error=error,
        changed_weights=tuple(weights),
        changed_values=tuple(values),
        read_number=number,
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
) -> tuple[list[Returned], str, list[str], list[str], str]:
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
    number = find_branch_on_number(model, spec, root, declared) if values and not error else ""
    # A subclass of tensors could not be read from the fork.
    plain = [
        [item.as_subclass(torch.Tensor) for item in output]
        if isinstance(output, list)
        else output.as_subclass(torch.Tensor)
        for output in outputs
    ]
    return plain, error, changed, list(values), number
