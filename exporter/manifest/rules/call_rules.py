"""Calls of more than positional tensors: `at`, `scalar`, `optional`, `constants`, `containers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from exporter.manifest.resolved.call import Container
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.signature import list_call_paths, list_paths, resolve_dtype
from exporter.manifest.rules.sources import list_exporters
from exporter.manifest.schema.tables import InputTable
from exporter.manifest.syntax.values import (
    KeyPath,
    Step,
    format_call_path,
    format_key,
    format_opsets,
    parse_call_path,
    quote,
)

_NUMBER_DTYPES = ("int64", "float32", "float64", "bool")
#: ONNX can test the presence of an optional value from this opset.
_FIRST_OPTIONAL_OPSET = 15
_OPTIONAL_FIX = (
    "write another entry that `extends` this one, without the input and with "
    "constants = [{ at = … }]"
)
#: Python's own containers; user code creates all others.
_BUILT_IN = ("list", "tuple", "dict")


def resolve_call_paths(entry: EffectiveSettings) -> tuple[str, ...]:
    """Return the path of each input; see `list_call_paths`. Report conflicts."""
    paths = list_call_paths(entry)
    _check_call(entry, paths)
    return paths


def _check_call(entry: EffectiveSettings, paths: Sequence[str]) -> None:
    """Report inputs, constants and containers that do not fit into one call.

    `paths`: The path of each input.
    """
    if entry.settings.inputs_from:
        _check_without_paths(entry)
    elif entry.has_valid("constants", "containers"):
        _check_conflicts(entry, paths)
    _check_inputs(entry)


def _check_inputs(entry: EffectiveSettings) -> None:
    """Report invalid Python numbers, and optional inputs that the file cannot have."""
    for index, table in enumerate(entry.settings.inputs):
        if table.scalar:
            _check_scalar(entry, ("inputs", index), table)
        if not (table.optional and entry.has_valid("exporter", "capture", "opsets")):
            continue
        early = [opset for opset in entry.settings.opsets if opset < _FIRST_OPTIONAL_OPSET]
        message = ""
        if entry.settings.capture != "script":
            exporters = list_exporters(entry.settings)
            exporter = "a trace" if exporters == {"torchscript"} else "dynamo"
            exporter = "dynamo or a trace" if len(exporters) > 1 else exporter
            message = f'{exporter} cannot write optional inputs, only capture = "script" can'
        elif early:
            message = f"ONNX has optional inputs from opset {_FIRST_OPTIONAL_OPSET}, not at "
            message += format_opsets(early)
        if message:
            entry.add_problem(("inputs", index, "optional"), f"{message}; {_OPTIONAL_FIX}")


def _check_scalar(entry: EffectiveSettings, key_path: KeyPath, table: InputTable) -> None:
    if table.shape:
        message = "a Python number has the shape [] in the file; write shape = []"
        entry.add_problem((*key_path, "shape"), message)
    dtype = resolve_dtype(entry.settings, table)
    if dtype not in _NUMBER_DTYPES:
        message = f"a Python number is int64, float32, float64 or bool, not {dtype}"
        entry.add_problem((*key_path, "dtype"), message)
    elif dtype == "float32" and entry.settings.capture == "script":
        message = "a float of a scripted model is float64 in the file; write float64"
        entry.add_problem((*key_path, "dtype"), message)
    if table.optional:
        message = "a Python number cannot be optional; remove `scalar` or `optional`"
        entry.add_problem((*key_path, "optional"), message)


def resolve_containers(entry: EffectiveSettings) -> tuple[Container, ...]:
    """Return every container with a type, after a check of its reference."""
    containers = []
    for index, table in enumerate(entry.settings.containers):
        kind, path = table.type, ("containers", index, "type")
        if ":" in kind:
            kind = entry.check_source(path, kind)
            if entry.has_valid("capture") and entry.settings.capture == "script":
                message = "a scripted model takes only tuples, lists and dicts"
                entry.add_problem(path, message)
        elif kind not in _BUILT_IN:
            names = ", ".join(quote(name) for name in _BUILT_IN)
            message = f'expected {names} or "file.py:name", got {quote(kind)}'
            entry.add_problem(path, message)
        containers.append(Container(at=table.at, type=kind))
    return tuple(containers)


def _check_without_paths(entry: EffectiveSettings) -> None:
    """Report keys that describe the call although `inputs_from` creates it."""
    function = quote(entry.settings.inputs_from)
    for index, table in enumerate(entry.settings.inputs):
        for key in ("at", "optional", "scalar"):
            if key in table.model_fields_set:
                message = f"{function} of `inputs_from` creates the call; remove this key"
                entry.add_problem(("inputs", index, key), message)
    for key in ("constants", "containers"):
        if getattr(entry.settings, key):
            message = f"{function} of `inputs_from` returns the complete call; remove this key"
            entry.add_problem((key,), message)


def _check_conflicts(entry: EffectiveSettings, input_paths: Iterable[str]) -> None:
    containers: dict[KeyPath, str] = {
        ("containers", index): path for index, path in enumerate(list_paths(entry, "containers"))
    }
    values: dict[KeyPath, str] = {("inputs", index): path for index, path in enumerate(input_paths)}
    values |= {
        ("constants", index): path for index, path in enumerate(list_paths(entry, "constants"))
    }
    paths = [*values.values(), *containers.values()]
    # An empty container is a value; the others follow from the values inside them.
    values |= {key: path for key, path in containers.items() if not _list_steps(path, paths)}
    keys = list(values)
    named = [(path, format_key(entry.find_source_path(key))) for key, path in values.items()]
    for index, message in sorted(find_conflicts(named).items()):
        entry.add_problem((*keys[index], "at"), message)
    first: dict[str, KeyPath] = {}
    for key, path in containers.items():
        owner = first.setdefault(path, key)
        if owner != key and _list_steps(path, paths):
            name = format_key(entry.find_source_path(owner))
            entry.add_problem((*key, "at"), f"{name} already sets the type of '{path}'")
        kind = entry.settings.containers[int(key[1])].type
        keywords = [step for step in _list_steps(path, paths) if isinstance(step, str)]
        if kind in ("list", "tuple") and keywords:
            message = f"a {kind} has positions, but '{path}.{keywords[0]}' is a key"
            entry.add_problem((*key, "type"), message)


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


def find_conflicts(values: Sequence[tuple[str, str]]) -> Mapping[int, str]:
    """Return a message for the index of each path and name that does not fit into one call.

    A missing position is reported for the value after it.
    """
    problems: dict[int, str] = {}
    owners: dict[tuple[Step, ...], int] = {}
    containers: dict[tuple[Step, ...], dict[Step, int]] = {}
    for index, (text, _) in enumerate(values):
        root, steps = parse_call_path(text)
        path = (root, *steps)
        prefixes = [path[:end] for end in range(2, len(path) + 1)]
        owner = next((owners[prefix] for prefix in prefixes if prefix in owners), None)
        if owner is None and path in containers:
            owner = min(containers[path].values())
        if owner is not None:
            problems[index] = f"'{text}' is already used by {values[owner][1]}"
            continue
        owners[path] = index
        for end in range(1, len(path)):
            containers.setdefault(path[:end], {}).setdefault(path[end], index)
    for container, children in containers.items():
        if container != ("kwargs",):
            problems = {**_find_child_problem(container, children), **problems}
    return problems


def _find_child_problem(
    container: tuple[Step, ...], children: Mapping[Step, int]
) -> dict[int, str]:
    """Return a problem if positions and keys are mixed or a position is missing."""
    name = format_call_path("", container)[1:]
    positions = sorted(step for step in children if isinstance(step, int))
    if len(positions) < len(children) and positions:
        return {max(children.values()): f"'{name}' cannot have both positions and keys"}
    for expected, position in enumerate(positions):
        if position != expected:
            return {children[position]: f"'{name}[{expected}]' is missing before this position"}
    return {}
