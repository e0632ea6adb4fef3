"""The key `cases`: further input sets with other values, sizes and omitted inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.core.errors import suggest_name
from exporter.manifest.resolved.call import Axis, Case, Fill
from exporter.manifest.rules.axes import check_size
from exporter.manifest.rules.derived_axes import find_size_problem
from exporter.manifest.rules.fills import find_value_problem, resolve_fill, resolve_inputs_from
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.signature import resolve_dtype
from exporter.manifest.schema.tables import CaseTable, FillTable, InputTable
from exporter.manifest.syntax.fields import OMITTED
from exporter.manifest.syntax.values import KeyPath, format_key, join_words, quote

#: The name of the input set that the inputs themselves describe.
_DECLARED = "declared"


def resolve_cases(entry: EffectiveSettings, axes: Sequence[Axis]) -> tuple[Case, ...]:
    input_axes = {axis.name: axis for axis in axes if axis.example is not None}
    examples = {axis.name: axis.example for axis in axes if axis.example is not None}
    owners: dict[str, KeyPath] = {}
    cases = []
    for index, case in enumerate(entry.settings.cases):
        path = ("cases", index)
        if case.name == _DECLARED:
            message = f"{quote(_DECLARED)} is reserved for the declared inputs; use another name"
            entry.add_problem((*path, "name"), message)
        elif owner := owners.get(case.name):
            message = f"{quote(case.name)} is already the name of {format_key(owner)}"
            entry.add_problem((*path, "name"), message)
        owners.setdefault(case.name, path)
        if not case.values and not case.axes and not case.inputs_from:
            message = "has the inputs of the model; add `values`, `axes` or `inputs_from`"
            entry.add_problem(path, message)
        if case.inputs_from and case.values:
            message = "`inputs_from` of this case creates all values; remove one of the two keys"
            entry.add_problem((*path, "values"), message)
        _check_axes(entry, path, case, input_axes)
        if problem := find_size_problem(axes, {**examples, **case.axes}):
            entry.add_problem((*path, "axes"), problem)
        cases.append(
            Case(
                name=case.name,
                fills=_resolve_values(entry, (*path, "values"), case),
                absent=tuple(name for name, value in case.values.items() if value == OMITTED),
                axes=case.axes,
                inputs_from=resolve_inputs_from(entry, (*path, "inputs_from"), case.inputs_from),
            )
        )
    return tuple(cases)


def _resolve_values(
    entry: EffectiveSettings, key_path: KeyPath, case: CaseTable
) -> dict[str, Fill]:
    """Return the fills of a case by input, and report those that do not suit their input."""
    inputs: dict[str, InputTable] = {table.name: table for table in entry.settings.inputs}
    fills = {}
    for name, value in case.values.items():
        value_path = (*key_path, name)
        if name not in inputs:
            entry.add_problem(value_path, f"no input has this name{suggest_name(name, inputs)}")
        elif value == OMITTED:
            if not inputs[name].optional:
                entry.add_problem(value_path, f"the input {quote(name)} is not `optional`")
        elif isinstance(value, str | FillTable):
            dtype = resolve_dtype(entry.settings, inputs[name])
            fills[name] = resolve_fill(entry, value_path, value, dtype)
        elif problem := find_value_problem(value, resolve_dtype(entry.settings, inputs[name])):
            entry.add_problem(value_path, problem)
        else:
            fills[name] = Fill(kind="value", value=value)
    return fills


def _check_axes(
    entry: EffectiveSettings, key_path: KeyPath, case: CaseTable, axes: Mapping[str, Axis]
) -> None:
    for name, size in case.axes.items():
        axis_path = (*key_path, "axes", name)
        if name not in axes:
            entry.add_problem(axis_path, f"no input has this axis{suggest_name(name, axes)}")
        elif rule := axes[name].rule:
            message = f"the size of this axis is {rule.formula}; set {join_words(rule.axes)}"
            entry.add_problem(axis_path, message)
        else:
            check_size(entry, axes[name], axis_path, size)
