"""Resolve the path of every input and constant in the model's call, and report conflicts.

An input without a name gets the name of its parameter in `forward`. The source of the model is
parsed, not run, because the parent process imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.resolved.call import Container
from exporter.manifest.rules.references import References
from exporter.manifest.schema.tables import InputTable
from exporter.manifest.syntax.call_paths import find_conflicts, find_next_position, parse_call_path
from exporter.manifest.syntax.python_source import ForwardParameters, UnreadableForward
from exporter.manifest.syntax.values import KeyPath, format_key, join_words, quote

#: Python's own containers; user code creates all others.
_BUILT_IN = ("list", "tuple", "dict")
_MISSING = "needs the key 'name'"


def resolve_call_paths(model: EffectiveSettings) -> tuple[str, ...]:
    """Return the path of each input; see `list_call_paths`. Report conflicts."""
    paths = list_call_paths(model)
    if model.settings.inputs_from:
        _check_without_paths(model)
    elif model.has_valid("constants", "containers"):
        _check_conflicts(model, paths)
    return paths


def list_call_paths(model: EffectiveSettings) -> tuple[str, ...]:
    """Return the path of each input; without `at`, the next free position of `args`.

    Returns:
        Empty paths if a function creates the call.
    """
    if model.settings.inputs_from:
        return tuple("" for _ in model.settings.inputs)
    reserved = frozenset(
        step
        for path in (*_list_paths(model, "constants"), *_list_paths(model, "containers"))
        if isinstance(step := parse_call_path(path)[1][0], int)
    )
    paths: list[str] = []
    for table in model.settings.inputs:
        parsed = [parse_call_path(path) for path in paths]
        used = [steps for root, steps in parsed if root == "args"]
        paths.append(table.at or f"args[{find_next_position(used, reserved)}]")
    return tuple(paths)


def complete_input_names(model: EffectiveSettings, references: References) -> EffectiveSettings:
    """Return the model with a name for each input; report inputs that can have none."""
    if not model.has_valid("inputs") or all(table.name for table in model.settings.inputs):
        return model
    paths = list_call_paths(model)
    tables = tuple(
        table if table.name else _add_name(model, index, table, path, references)
        for index, (table, path) in enumerate(zip(model.settings.inputs, paths, strict=True))
    )
    settings = model.settings.model_copy(update={"inputs": tables})
    return replace(model, settings=settings)


def resolve_containers(model: EffectiveSettings, references: References) -> tuple[Container, ...]:
    """Return every container with a type, after a check of its reference."""
    containers = []
    for index, table in enumerate(model.settings.containers):
        kind, path = table.type, ("containers", index, "type")
        if ":" in kind:
            kind = references.check_source(model, path, kind)
            if model.has_valid("capture") and model.settings.capture == "script":
                message = "a scripted model takes only tuples, lists and dicts"
                model.add_problem(path, message)
        elif kind not in _BUILT_IN:
            names = ", ".join(quote(name) for name in _BUILT_IN)
            message = f'expected {names} or "file.py:name", got {quote(kind)}'
            model.add_problem(path, message)
        containers.append(Container(at=table.at, type=kind))
    return tuple(containers)


def _add_name(
    model: EffectiveSettings, index: int, table: InputTable, path: str, references: References
) -> InputTable:
    """Return the table with the name of its parameter, or with its path after a problem."""
    try:
        name = _find_name(model, path, references)
    except UnreadableForward as error:
        model.add_problem(("inputs", index), f"{_MISSING}: {error}; write the name")
        name = f"inputs[{index}]"
    return table.model_copy(update={"name": name})


def _find_name(model: EffectiveSettings, path: str, references: References) -> str:
    if not path:
        raise UnreadableForward("the function of `inputs_from` creates the call")
    root, (step, *inner) = parse_call_path(path)
    if inner:
        raise UnreadableForward(f"{quote(path)} is inside a container")
    if root == "kwargs":
        return str(step)
    if not model.has_valid("source"):
        raise UnreadableForward("the source is not valid")
    forward = references.read_forward(model, model.settings.source)
    return _select_parameter(forward, int(step))


def _select_parameter(forward: ForwardParameters, position: int) -> str:
    names = forward.positional
    if position < len(names):
        return names[position]
    if forward.variadic:
        raise UnreadableForward(f"`forward` takes this position in *{forward.variadic}")
    available = f"only {join_words(names)}" if names else "no position"
    raise UnreadableForward(f"`forward` has {available}, so position {position} has no parameter")


def _list_paths(model: EffectiveSettings, key: str) -> list[str]:
    return [table.at for table in getattr(model.settings, key)] if model.has_valid(key) else []


def _check_without_paths(model: EffectiveSettings) -> None:
    """Report keys that describe the call although `inputs_from` creates it."""
    function = quote(model.settings.inputs_from)
    for index, table in enumerate(model.settings.inputs):
        for key in ("at", "optional", "scalar"):
            if key in table.model_fields_set:
                message = f"{function} of `inputs_from` creates the call; remove this key"
                model.add_problem(("inputs", index, key), message)
    for key in ("constants", "containers"):
        if getattr(model.settings, key):
            message = f"{function} of `inputs_from` returns the complete call; remove this key"
            model.add_problem((key,), message)


def _check_conflicts(model: EffectiveSettings, input_paths: Iterable[str]) -> None:
    containers: dict[KeyPath, str] = {
        ("containers", index): path for index, path in enumerate(_list_paths(model, "containers"))
    }
    values: dict[KeyPath, str] = {("inputs", index): path for index, path in enumerate(input_paths)}
    values |= {
        ("constants", index): path for index, path in enumerate(_list_paths(model, "constants"))
    }
    paths = [*values.values(), *containers.values()]
    # An empty container is a value; the others follow from the values inside them.
    values |= {key: path for key, path in containers.items() if not _list_steps(path, paths)}
    keys = list(values)
    named = [(path, format_key(model.find_source_path(key))) for key, path in values.items()]
    for index, message in sorted(find_conflicts(named).items()):
        model.add_problem((*keys[index], "at"), message)
    _check_types(model, containers, paths)


def _check_types(
    model: EffectiveSettings, containers: Mapping[KeyPath, str], paths: list[str]
) -> None:
    first: dict[str, KeyPath] = {}
    for key, path in containers.items():
        owner = first.setdefault(path, key)
        if owner != key and _list_steps(path, paths):
            name = format_key(model.find_source_path(owner))
            model.add_problem((*key, "at"), f"{name} already sets the type of '{path}'")
        kind = model.settings.containers[int(key[1])].type
        keywords = [step for step in _list_steps(path, paths) if isinstance(step, str)]
        if kind in ("list", "tuple") and keywords:
            message = f"a {kind} has positions, but '{path}.{keywords[0]}' is a key"
            model.add_problem((*key, "type"), message)


def _list_steps(container: str, paths: Iterable[str]) -> list[int | str]:
    """Return the first step below the container of each path inside it."""
    root, steps = parse_call_path(container)
    inner_steps = []
    for path in paths:
        other_root, other_steps = parse_call_path(path)
        inside = root == other_root and other_steps[: len(steps)] == steps
        if inside and len(other_steps) > len(steps):
            inner_steps.append(other_steps[len(steps)])
    return inner_steps
