"""Resolve the cases of an entry, checked against its inputs and axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.core.errors import suggest_name
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.resolved.call import Axis, Case, Fill, InputsFrom
from exporter.manifest.rules.axes import find_size_problem, format_size_limits
from exporter.manifest.rules.fills import find_value_problem, resolve_fill
from exporter.manifest.rules.references import References
from exporter.manifest.rules.signature import resolve_dtype
from exporter.manifest.schema.fields import OMITTED
from exporter.manifest.schema.tables import CaseTable, FillTable, InputTable
from exporter.manifest.syntax.values import KeyPath, format_key, join_words, quote

#: The name of the input set that the inputs themselves describe.
_DECLARED = "declared"


def resolve_cases(
    model: EffectiveSettings, axes: Sequence[Axis], references: References
) -> tuple[Case, ...]:
    """Return the cases, in order."""
    input_axes = {axis.name: axis for axis in axes if axis.example is not None}
    examples = {axis.name: axis.example for axis in axes if axis.example is not None}
    owners: dict[str, KeyPath] = {}
    cases = []
    for index, case in enumerate(model.settings.cases):
        path = ("cases", index)
        if case.name == _DECLARED:
            message = f"{quote(_DECLARED)} is reserved for the declared inputs; use another name"
            model.add_problem((*path, "name"), message)
        elif owner := owners.get(case.name):
            message = f"{quote(case.name)} is already the name of {format_key(owner)}"
            model.add_problem((*path, "name"), message)
        owners.setdefault(case.name, path)
        if not case.values and not case.axes and not case.inputs_from:
            message = "has the inputs of the model; add `values`, `axes` or `inputs_from`"
            model.add_problem(path, message)
        if case.inputs_from and case.values:
            message = "`inputs_from` of this case creates all values; remove one of the two keys"
            model.add_problem((*path, "values"), message)
        _check_axes(model, path, case, input_axes)
        if problem := find_size_problem(axes, {**examples, **case.axes}):
            model.add_problem((*path, "axes"), problem)
        cases.append(_resolve_case(model, path, case, references))
    return tuple(cases)


def resolve_inputs_from(
    model: EffectiveSettings, path: KeyPath, function: str, references: References
) -> InputsFrom | None:
    """Return the checked function that creates the call, or None if none is set."""
    if not function:
        return None
    return InputsFrom(function=references.check_function(model, path, function))


def _resolve_case(
    model: EffectiveSettings, path: KeyPath, case: CaseTable, references: References
) -> Case:
    return Case(
        name=case.name,
        fills=_resolve_values(model, (*path, "values"), case, references),
        absent=tuple(name for name, value in case.values.items() if value == OMITTED),
        axes=case.axes,
        inputs_from=resolve_inputs_from(
            model, (*path, "inputs_from"), case.inputs_from, references
        ),
    )


def _resolve_values(
    model: EffectiveSettings, path: KeyPath, case: CaseTable, references: References
) -> dict[str, Fill]:
    """Return the fills of a case by input, and report those that do not suit their input."""
    inputs: dict[str, InputTable] = {table.name: table for table in model.settings.inputs}
    fills = {}
    for name, value in case.values.items():
        value_path = (*path, name)
        if name not in inputs:
            model.add_problem(value_path, f"no input has this name{suggest_name(name, inputs)}")
        elif value == OMITTED:
            if not inputs[name].optional:
                model.add_problem(value_path, f"the input {quote(name)} is not `optional`")
        elif isinstance(value, str | FillTable):
            dtype = resolve_dtype(model.settings, inputs[name])
            fills[name] = resolve_fill(model, value_path, value, dtype, references)
        elif problem := find_value_problem(value, resolve_dtype(model.settings, inputs[name])):
            model.add_problem(value_path, problem)
        else:
            fills[name] = Fill(kind="value", value=value)
    return fills


def _check_axes(
    model: EffectiveSettings, path: KeyPath, case: CaseTable, axes: Mapping[str, Axis]
) -> None:
    for name, size in case.axes.items():
        axis_path = (*path, "axes", name)
        if name not in axes:
            model.add_problem(axis_path, f"no input has this axis{suggest_name(name, axes)}")
        elif rule := axes[name].rule:
            message = f"the size of this axis is {rule.formula}; set {join_words(rule.axes)}"
            model.add_problem(axis_path, message)
        elif not axes[name].allows(size):
            limits = format_size_limits(axes[name])
            message = f"the axis {quote(name)} takes sizes of {limits}, not {size}"
            model.add_problem(axis_path, message)
