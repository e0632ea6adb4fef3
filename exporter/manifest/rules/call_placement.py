"""Where every input and constant goes in the model's call: defaults filled in, clashes found.

In: the `at` keys of an entry. Out: an `at` for each input, and the containers around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.references import References
from exporter.manifest.spec.call import Container
from exporter.manifest.syntax.call_paths import find_conflicts, find_next_position, parse_call_path
from exporter.manifest.syntax.message_format import KeyPath, format_key, quote

#: Containers of the language itself; all others are made by user code.
_BUILT_IN = ("list", "tuple", "dict")
#: Keys that say what `inputs_from` returns already.
_OF_A_CALL = ("constants", "containers")


def resolve_call_paths(model: EffectiveSettings) -> tuple[str, ...]:
    """The place of each input; without `at` the next position of `args` that is free."""
    if model.settings.inputs_from:
        _refuse_places(model)
        return tuple("" for _ in model.settings.inputs)
    taken = frozenset(
        step
        for at in (*_said(model, "constants"), *_said(model, "containers"))
        if isinstance(step := parse_call_path(at)[1][0], int)
    )
    places: list[str] = []
    for table in model.settings.inputs:
        parsed = [parse_call_path(place) for place in places]
        used = [steps for root, steps in parsed if root == "args"]
        places.append(table.at or f"args[{find_next_position(used, taken)}]")
    if model.has(*_OF_A_CALL):
        _refuse_conflicts(model, places)
    return tuple(places)


def resolve_containers(model: EffectiveSettings, references: References) -> tuple[Container, ...]:
    """Every container that says its type, with references checked."""
    found = []
    for index, table in enumerate(model.settings.containers):
        kind, path = table.type, ("containers", index, "type")
        if ":" in kind:
            kind = references.source(model, path, kind)
            if model.has("capture") and model.settings.capture == "script":
                message = "a scripted model takes tuples, lists and dicts, no other objects"
                model.add_problem(path, message)
        elif kind not in _BUILT_IN:
            names = ", ".join(quote(name) for name in _BUILT_IN)
            message = f'expected {names} or "file.py:name", got {quote(kind)}'
            model.add_problem(path, message)
        found.append(Container(at=table.at, type=kind))
    return tuple(found)


def _said(model: EffectiveSettings, key: str) -> Iterable[str]:
    return [table.at for table in getattr(model.settings, key)] if model.has(key) else []


def _refuse_places(model: EffectiveSettings) -> None:
    """Where user code makes the call, nothing else can say how it looks."""
    function = quote(model.settings.inputs_from)
    for index, table in enumerate(model.settings.inputs):
        for key in ("at", "fill", "optional", "scalar"):
            if key in table.model_fields_set:
                message = f"{function} of `inputs_from` says that, as the call that it returns"
                model.add_problem(("inputs", index, key), message)
    for key in _OF_A_CALL:
        if getattr(model.settings, key):
            model.add_problem(
                (key,), f"{function} of `inputs_from` returns the whole call; leave it out"
            )


def _refuse_conflicts(model: EffectiveSettings, places: Sequence[str]) -> None:
    constants = _said(model, "constants")
    containers: dict[KeyPath, str] = {
        ("containers", index): at for index, at in enumerate(_said(model, "containers"))
    }
    standing: dict[KeyPath, str] = {("inputs", index): at for index, at in enumerate(places)}
    standing |= {("constants", index): at for index, at in enumerate(constants)}
    below = [*standing.values(), *containers.values()]
    # One that holds nothing is a value of its own; the others are where values need them.
    empty = {place: at for place, at in containers.items() if not _steps_below(at, below)}
    standing |= empty
    owners = list(standing)
    named = [(at, format_key(model.key(place))) for place, at in standing.items()]
    for index, message in sorted(find_conflicts(named).items()):
        model.add_problem((*owners[index], "at"), message)
    _refuse_types(model, containers, below)


def _refuse_types(
    model: EffectiveSettings, containers: Mapping[KeyPath, str], values: Sequence[str]
) -> None:
    first: dict[str, KeyPath] = {}
    for place, at in containers.items():
        owner = first.setdefault(at, place)
        if owner != place and _steps_below(at, values):
            message = f"{format_key(model.key(owner))} says what '{at}' is already"
            model.add_problem((*place, "at"), message)
        kind = model.settings.containers[int(place[1])].type
        keys = [step for step in _steps_below(at, values) if isinstance(step, str)]
        if kind in ("list", "tuple") and keys:
            message = f"a {kind} has positions, and '{at}.{keys[0]}' is a key"
            model.add_problem((*place, "type"), message)


def _steps_below(at: str, others: Iterable[str]) -> list[int | str]:
    """The first step from `at` to each place inside it."""
    root, steps = parse_call_path(at)
    found = []
    for other in others:
        other_root, other_steps = parse_call_path(other)
        inside = root == other_root and other_steps[: len(steps)] == steps
        if inside and len(other_steps) > len(steps):
            found.append(other_steps[len(steps)])
    return found
