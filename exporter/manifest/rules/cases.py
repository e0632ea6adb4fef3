"""The cases of an entry in, checked against its inputs and axes, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.axes import format_size_limits
from exporter.manifest.rules.fills import find_value_problem
from exporter.manifest.rules.references import References
from exporter.manifest.rules.signature import resolve_dtype
from exporter.manifest.schema.fields import OMITTED
from exporter.manifest.schema.tables import CaseTable, InputTable
from exporter.manifest.spec.call import Axis, Case, InputsFrom
from exporter.manifest.syntax.message_format import KeyPath, format_key, quote

#: The name of the input set that the inputs themselves describe.
_DECLARED = "declared"


def resolve_cases(
    model: EffectiveSettings, axes: Sequence[Axis], references: References
) -> tuple[Case, ...]:
    """The cases, in order."""
    inputs = {table.name: table for table in model.settings.inputs}
    choosable = {axis.name: axis for axis in axes if axis.example is not None}
    places: dict[str, KeyPath] = {}
    for index, case in enumerate(model.settings.cases):
        place = ("cases", index)
        if case.name == _DECLARED:
            message = f"{quote(_DECLARED)} is the name of the declared inputs themselves"
            model.add_problem((*place, "name"), message)
        elif owner := places.get(case.name):
            message = f"{quote(case.name)} is the name of {format_key(owner)} already"
            model.add_problem((*place, "name"), message)
        places.setdefault(case.name, place)
        if not case.values and not case.axes and not case.inputs_from:
            message = (
                "needs `values`, `axes` or `inputs_from`: it has no other inputs than the model"
            )
            model.add_problem(place, message)
        _check_maker(model, place, case)
        _check_values(model, place, case, inputs)
        _check_axes(model, place, case, choosable)
    cases = enumerate(model.settings.cases)
    return tuple(_case(model, ("cases", index), case, references) for index, case in cases)


def _case(
    model: EffectiveSettings, place: KeyPath, case: CaseTable, references: References
) -> Case:
    files = {
        name: references.data_file(model, (*place, "values", name, "file"), value["file"])
        for name, value in case.values.items()
        if isinstance(value, dict)
    }
    absent = tuple(name for name, value in case.values.items() if value == OMITTED)
    given = {n: value for n, value in case.values.items() if n not in files and n not in absent}
    return Case(
        name=case.name,
        values=given,
        files=files,
        absent=absent,
        axes=case.axes,
        inputs_from=resolve_inputs_from(
            model, (*place, "inputs_from"), case.inputs_from, references
        ),
    )


def resolve_inputs_from(
    model: EffectiveSettings, path: KeyPath, function: str, references: References
) -> InputsFrom | None:
    """The function that makes a whole call, checked; None where none is named."""
    if not function:
        return None
    return InputsFrom(function=references.function(model, path, function))


def _check_maker(model: EffectiveSettings, place: KeyPath, case: CaseTable) -> None:
    """Two ways to say one value contradict each other."""
    if case.inputs_from and case.values:
        model.add_problem(
            (*place, "values"), "the call of `inputs_from` has them; leave one of them out"
        )
    elif model.settings.inputs_from and case.values:
        message = "the model's `inputs_from` makes the whole call: write `inputs_from` here too"
        model.add_problem((*place, "values"), message)


def _check_values(
    model: EffectiveSettings, place: KeyPath, case: CaseTable, inputs: Mapping[str, InputTable]
) -> None:
    for name, value in case.values.items():
        path = (*place, "values", name)
        if name not in inputs:
            model.add_problem(path, f"no input has this name{suggest_nearest(name, inputs)}")
        elif value == OMITTED:
            if not inputs[name].optional:
                model.add_problem(path, f"the input {quote(name)} is not `optional`")
        elif isinstance(value, dict):
            continue
        elif problem := find_value_problem(value, resolve_dtype(model.settings, inputs[name])):
            model.add_problem(path, problem)


def _check_axes(
    model: EffectiveSettings, place: KeyPath, case: CaseTable, choosable: Mapping[str, Axis]
) -> None:
    for name, size in case.axes.items():
        path = (*place, "axes", name)
        if name not in choosable:
            model.add_problem(path, f"no input has this axis{suggest_nearest(name, choosable)}")
        elif not choosable[name].allows(size):
            sizes = format_size_limits(choosable[name])
            model.add_problem(path, f"the axis {quote(name)} takes sizes of {sizes}, not {size}")
