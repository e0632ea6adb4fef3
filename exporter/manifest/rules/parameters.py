"""`parameters` as written in, what the worker names weights by out.

Which weights there are is known once the model is built: the rest of the rules is the worker's.
"""

from __future__ import annotations

from collections.abc import Iterator

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.spec.model import ParameterNames
from exporter.manifest.syntax.message_format import KeyPath, format_key, quote


def resolve_parameters(model: EffectiveSettings) -> ParameterNames | None:
    """The names of weights; None where they keep those that they have in the model."""
    match model.settings.parameters:
        case None:
            return None
        case str() as numbered:
            return ParameterNames(template=numbered)
        case tuple() as names:
            _refuse_taken(model, names)
            return ParameterNames(names=names)
        case dict() as patterns:
            return ParameterNames(patterns=patterns)


def _refuse_taken(model: EffectiveSettings, names: tuple[str, ...]) -> None:
    """A name means one value of the graph."""
    taken: dict[str, KeyPath] = dict(_signature(model)) if model.has("inputs", "outputs") else {}
    for index, name in enumerate(names):
        if owner := taken.get(name):
            message = f"{quote(name)} is the name of {format_key(owner)} already"
            model.add_problem(("parameters", index), message)
        taken.setdefault(name, ("parameters", index))


def _signature(model: EffectiveSettings) -> Iterator[tuple[str, KeyPath]]:
    for index, given in enumerate(model.settings.inputs):
        yield given.name, ("inputs", index)
    for index, put_out in enumerate(model.settings.outputs):
        yield put_out.name, ("outputs", index)
