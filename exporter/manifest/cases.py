"""The cases of an entry in, checked against its inputs and axes, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.errors import nearest
from exporter.manifest.axes import contract
from exporter.manifest.fills import value_problem
from exporter.manifest.layers import Effective
from exporter.manifest.signature import resolved_dtype
from exporter.manifest.spec import Axis, Case
from exporter.manifest.tables import CaseTable
from exporter.manifest.wording import KeyPath, key_text, quoted

#: The name of the input set that the inputs themselves describe.
_DECLARED = "declared"


def resolved_cases(model: Effective, axes: Sequence[Axis]) -> tuple[Case, ...]:
    """The cases, in order."""
    dtypes = {table.name: resolved_dtype(model.settings, table) for table in model.settings.inputs}
    choosable = {axis.name: axis for axis in axes if axis.example is not None}
    places: dict[str, KeyPath] = {}
    for index, case in enumerate(model.settings.cases):
        place = ("cases", index)
        if case.name == _DECLARED:
            message = f"{quoted(_DECLARED)} is the name of the declared inputs themselves"
            model.refuse((*place, "name"), message)
        elif owner := places.get(case.name):
            message = f"{quoted(case.name)} is the name of {key_text(owner)} already"
            model.refuse((*place, "name"), message)
        places.setdefault(case.name, place)
        if not case.values and not case.axes:
            model.refuse(place, "needs `values` or `axes`: it has no other inputs than the model")
        _check_values(model, place, case, dtypes)
        _check_axes(model, place, case, choosable)
    return tuple(
        Case(name=case.name, values=case.values, axes=case.axes) for case in model.settings.cases
    )


def _check_values(
    model: Effective, place: KeyPath, case: CaseTable, dtypes: Mapping[str, str]
) -> None:
    for name, value in case.values.items():
        path = (*place, "values", name)
        if name not in dtypes:
            model.refuse(path, f"no input has this name{nearest(name, dtypes)}")
        elif problem := value_problem(value, dtypes[name]):
            model.refuse(path, problem)


def _check_axes(
    model: Effective, place: KeyPath, case: CaseTable, choosable: Mapping[str, Axis]
) -> None:
    for name, size in case.axes.items():
        path = (*place, "axes", name)
        if name not in choosable:
            model.refuse(path, f"no input has this axis{nearest(name, choosable)}")
        elif not choosable[name].allows(size):
            sizes = contract(choosable[name])
            model.refuse(path, f"the axis {quoted(name)} takes sizes of {sizes}, not {size}")
