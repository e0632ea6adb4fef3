"""Numbers that each call changes: other values of them may take another branch of the model.

`if self.calls < 1000` is the same in all calls of a proof. So the number gets values near those of
the model and large ones, and the outputs of calls with the same inputs are compared. A number that
has no effect on them, such as the calls for a message, is no fault; a value that later calls keep,
such as the length of a table, is none either.
"""

from __future__ import annotations

import dis
import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

import torch

from exporter.manifest import ModelSpec
from exporter.worker.dependencies.source_files import find_model_file
from exporter.worker.inputs.input_sets import InputSet, measure_run
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure
from exporter.worker.process.followed_code import find_blindness, follow_code
from exporter.worker.reference.eager_run import Outputs, count_weights, run_model
from exporter.worker.reference.model_path import ModelPath
from exporter.worker.reference.noise import describe_difference, is_rounding
from exporter.worker.reference.python_values import PythonValue, list_values

#: The number of a value: its own, or its length, by rows of a tensor, too.
_Number: TypeAlias = "int | float"
#: Values of one number for a fast model and for a slow one, and milliseconds for all of them.
_MOST_VALUES, _LEAST_VALUES, _TIME = 160, 6, 400
#: A number after very many calls, and the longest collection.
_FAR, _LONGEST = 10**6, 10**4
_COLLECTIONS = (list, deque, dict, set, tuple)


def find_branch_on_number(model: Model, spec: ModelSpec, root: Path, chosen: InputSet) -> str:
    """Return which number that calls change has an effect on later outputs, or "".

    The model keeps what these calls change.
    """
    search = _Search(model, spec, root, chosen)
    try:
        return search.find()
    except Failure:  # a model that fails in a repeated call has another message
        return ""


@dataclass(frozen=True, slots=True)
class _Change:
    """A value whose number was another one before the last call."""

    name: str
    before: _Number
    after: _Number
    axis: int | None
    """The axis of a tensor that grows."""


class _Search:
    """The calls of a model with the same inputs and with other numbers."""

    def __init__(self, model: Model, spec: ModelSpec, root: Path, chosen: InputSet) -> None:
        self._model, self._spec, self._root, self._sizes = model, spec, root, chosen.sizes
        self._inputs = draw_inputs(spec, chosen, root)
        self._path = ModelPath(root)

    def find(self) -> str:
        outputs = run_model(self._model, self._spec, self._inputs)
        numbers = {name: _measure(each.value) for name, each in self._list_values().items()}
        if self._differs([outputs]):  # the record is red without a search
            return ""
        changes = [
            change
            for name, each in self._list_values().items()
            if (change := _compare(name, numbers.get(name), _measure(each.value)))
        ]
        if not changes:
            return ""
        steps, expected = self._follow_two_calls()
        for change in changes:
            if text := self._try_values(change, steps, expected):
                return text
        return ""

    def _list_values(self) -> dict[str, PythonValue]:
        values = {each.name: each for each in list_values(self._model)}
        for path, module in self._model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                label = f"the buffer '{f'{path}.{name}'.removeprefix('.')}'"
                values[label] = PythonValue(label, buffer, partial(setattr, module, name))
        return values

    def _try_values(self, change: _Change, steps: _Steps, expected: list[Outputs]) -> str:
        tried = list(self._list_candidates(change))
        cost = measure_run(self._spec, self._sizes, count_weights(self._model))
        most = max(_LEAST_VALUES, min(_MOST_VALUES, int(_TIME / max(cost, 0.1))))
        for number in islice(tried, most):
            if not self._write(change, number) or not self._differs(expected):
                continue
            line = ""
            if self._write(change, number) and not find_blindness():
                line = self._find_branch(steps, self._follow_two_calls()[0])
            where = f"a branch at {line} reads it" if line else "outputs depend on it"
            return f"calls change {change.name}, and {where}"
        if len(tried) > most:
            untried = f"{len(tried) - most} of {len(tried)} values of {change.name}"
            return f"the same outputs with {untried}, which calls change: its runs are slow"
        return ""

    def _list_candidates(self, change: _Change) -> Iterator[_Number]:
        """Yield the values that later calls may reach: very large, then near those of the model."""
        step = abs(change.after - change.before)
        sign = 1 if change.after > change.before else -1
        constants = sorted({0, 1, *self._path.constants, *self._path.fractions}, reverse=True)
        near = (each + shift for each in constants for shift in (0, -step, step, -2 * step, -1, 1))
        for number in dict.fromkeys((sign * _FAR, sign * _LONGEST, *near)):
            if (number - change.after) * sign > 0:
                yield number

    def _write(self, change: _Change, number: _Number) -> bool:
        """Give the value this number, and return whether it accepts it."""
        target = self._list_values().get(change.name)
        if target is None:
            return False
        with suppress(Exception), torch.no_grad():  # a class of the user raises any error
            return _set_number(target, change, number)
        return False

    def _differs(self, expected: list[Outputs]) -> bool:
        with suppress(Failure):  # such as an index that no call reaches
            for first in expected:
                outputs = run_model(self._model, self._spec, self._inputs)
                is_other = bool(describe_difference(self._spec, first, outputs))
                if is_other and not is_rounding(first, outputs):
                    return True
        return False

    def _follow_two_calls(self) -> tuple[_Steps, list[Outputs]]:
        """Return the instructions of two calls, and the outputs; the second one may read more."""
        steps: _Steps = []
        outputs = []
        with follow_code(self._path.enter, lambda *step: steps.append(step)), suppress(Failure):
            outputs = [run_model(self._model, self._spec, self._inputs) for _ in range(2)]
        return steps, outputs

    def _find_branch(self, steps: _Steps, others: _Steps) -> str:
        """Return the line of the last instruction before two calls differ, or ""."""
        pairs = enumerate(zip(steps, others, strict=False))
        index = next((index for index, (left, right) in pairs if left != right), 0)
        if not index:
            return ""
        code, offset = steps[index - 1]
        line = max(
            (line for start, line in dis.findlinestarts(code) if start <= offset and line),
            default=0,
        )
        file = find_model_file(code.co_filename, self._root)
        return f"{file}:{line}" if file and line else ""


_Steps: TypeAlias = "list[tuple[CodeType, int]]"


def _measure(value: Any) -> _Number | tuple[int, ...] | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, torch.Tensor):
        is_number = value.numel() == 1 and not value.is_complex() and value.device.type != "meta"
        return value.item() if is_number else tuple(value.shape)
    if isinstance(value, _COLLECTIONS):
        return len(value)
    if type(value) is itertools.count:
        with suppress(ValueError):
            return float(repr(value)[6:-1].partition(",")[0])
    return None


def _compare(name: str, before: Any, after: Any) -> _Change | None:
    if before is None or after is None or before == after:
        return None
    if isinstance(before, tuple) and isinstance(after, tuple):
        pairs = enumerate(zip(before, after, strict=False))
        axes = [index for index, (left, right) in pairs if left != right]
        if len(before) != len(after) or len(axes) != 1:
            return None
        return _Change(name, before[axes[0]], after[axes[0]], axes[0])
    if isinstance(before, tuple) or isinstance(after, tuple):
        return None
    return _Change(name, before, after, None)


def _set_number(target: PythonValue, change: _Change, number: _Number) -> bool:
    value = target.value
    if isinstance(value, torch.Tensor) and change.axis is None:
        value.fill_(number)
    elif isinstance(value, int | float):
        target.write(type(value)(number))
    elif type(value) is itertools.count:
        target.write(itertools.count(int(number)))
    elif not len(value) or not 0 < number <= _LONGEST:
        return False
    elif isinstance(value, torch.Tensor):
        rows = torch.arange(int(number)) % value.shape[change.axis or 0]
        target.write(value.index_select(change.axis or 0, rows))
    else:
        _resize(target, int(number))
    return True


def _resize(target: PythonValue, length: int) -> None:
    value = target.value
    more = max(0, length - len(value))
    if isinstance(value, list | deque):
        value.extend([value[-1]] * more)
        for _ in range(len(value) - length):
            value.pop()
    elif isinstance(value, dict):
        last = next(reversed(value.values()))
        value.update({object(): last for _ in range(more)})
    elif isinstance(value, set):
        value.update(object() for _ in range(more))
    else:
        target.write((*value[:length], *value[-1:] * more))
