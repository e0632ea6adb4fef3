"""Resolve the inputs and outputs of an entry: dimensions, copies, places in the call.

`dynamic_axes` has the meaning that torch.onnx gives it. A name turns the size in `shape` into the
example of a dynamic axis. A list of indices gets the names that torch.onnx generates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.core import import_plugin
from exporter.core.errors import suggest_name
from exporter.manifest.resolved.call import Container, Dim
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.sources import list_exporters
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import (
    InputTable,
    OutputTable,
)
from exporter.manifest.syntax.fields import PLACEHOLDER
from exporter.manifest.syntax.values import (
    KeyPath,
    find_conflicts,
    find_next_position,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedShape:
    """An input or an output with the names of its axes."""

    path: KeyPath
    """`("inputs", 0)`."""
    name: str
    dims: tuple[Dim, ...]
    sizes: Mapping[int, int]
    """The size in `shape` of each dimension that `dynamic_axes` names."""

    @property
    def is_input(self) -> bool:
        return self.path[0] == "inputs"


def resolve_shapes(model: EffectiveSettings) -> tuple[NamedShape, ...]:
    tables: list[tuple[KeyPath, InputTable | OutputTable]] = []
    tables += [(("inputs", index), each) for index, each in enumerate(model.settings.inputs)]
    tables += [(("outputs", index), each) for index, each in enumerate(model.settings.outputs)]
    shapes: dict[str, NamedShape] = {}
    for path, table in tables:
        if owner := shapes.get(table.name):
            name = format_key(model.find_source_path(owner.path))
            message = f"{quote(table.name)} is already the name of {name}; choose another one"
            model.add_problem((*path, "name"), message)
        else:
            dims = tuple(table.shape)
            shapes[table.name] = NamedShape(path=path, name=table.name, dims=dims, sizes={})
    if model.has_valid("dynamic_axes"):
        for name, axes in model.settings.dynamic_axes.items():
            if name in shapes:
                shapes[name] = _apply_dynamic_axes(model, shapes[name], axes)
            else:
                hint = suggest_name(name, shapes)
                message = f"no input or output has this name{hint}"
                model.add_problem(("dynamic_axes", name), message)
    return tuple(shapes.values())


def resolve_dtype(settings: Settings, table: InputTable | OutputTable) -> str:
    """Return the dtype of a table; without one, the dtype of the model's precision."""
    return table.dtype or settings.precision or "float32"


def check_inputs(model: EffectiveSettings) -> None:
    """Report invalid Python numbers, and optional inputs that the file cannot have."""
    for index, table in enumerate(model.settings.inputs):
        if table.scalar:
            _check_scalar(model, ("inputs", index), table)
        if not (table.optional and model.has_valid("exporter", "capture", "opsets")):
            continue
        early = [opset for opset in model.settings.opsets if opset < _FIRST_OPTIONAL_OPSET]
        message = ""
        if model.settings.capture != "script":
            exporters = list_exporters(model.settings)
            exporter = "a trace" if exporters == {"torchscript"} else "dynamo"
            exporter = "dynamo or a trace" if len(exporters) > 1 else exporter
            message = f'{exporter} cannot write optional inputs, only capture = "script" can'
        elif early:
            message = f"ONNX has optional inputs from opset {_FIRST_OPTIONAL_OPSET}, not at "
            message += format_opsets(early)
        if message:
            model.add_problem(("inputs", index, "optional"), f"{message}; {_OPTIONAL_FIX}")


def _apply_dynamic_axes(
    model: EffectiveSettings, shape: NamedShape, axes: tuple[int, ...] | dict[int, str]
) -> NamedShape:
    key: KeyPath = ("dynamic_axes", shape.name)
    if isinstance(axes, dict):
        items = [((*key, str(index)), index, name) for index, name in axes.items()]
    else:
        # torch.onnx counts the position in the list, not the dimension.
        items = [
            ((*key, position), index, f"{shape.name}_dynamic_axes_{position + 1}")
            for position, index in enumerate(axes)
        ]
    dims, sizes = list(shape.dims), dict(shape.sizes)
    for path, index, name in items:
        if index >= len(dims):
            extent = f"has the dimensions 0 to {len(dims) - 1}" if dims else "is a scalar"
            message = f"{quote(shape.name)} {extent}, so there is no dimension {index}"
            model.add_problem(path, message)
            continue
        current = dims[index]
        if isinstance(current, int):
            dims[index], sizes[index] = name, current
        elif index in sizes:
            model.add_problem(path, f"dimension {index} is listed twice")
        elif current != name and isinstance(axes, dict):
            other = format_key(model.find_source_path((*shape.path, "shape", index)))
            message = f"names the axis {quote(name)}, but {other} names it {quote(current)}"
            model.add_problem(path, message)
    return NamedShape(path=shape.path, name=shape.name, dims=tuple(dims), sizes=sizes)


def _check_scalar(model: EffectiveSettings, path: KeyPath, table: InputTable) -> None:
    if table.shape:
        message = "a Python number has the shape [] in the file; write shape = []"
        model.add_problem((*path, "shape"), message)
    dtype = resolve_dtype(model.settings, table)
    if dtype not in _NUMBER_DTYPES:
        message = f"a Python number is int64, float32, float64 or bool, not {dtype}"
        model.add_problem((*path, "dtype"), message)
    elif dtype == "float32" and model.settings.capture == "script":
        message = "a float of a scripted model is float64 in the file; write float64"
        model.add_problem((*path, "dtype"), message)
    if table.optional:
        message = "a Python number cannot be optional; remove `scalar` or `optional`"
        model.add_problem((*path, "optional"), message)


#: The keys of an entry with tables that have `repeat`.
REPEATED = ("inputs", "outputs", "constants", "containers")


def expand_repeats(model: EffectiveSettings) -> EffectiveSettings:
    """Return the model with a separate table for each copy."""
    keys = (key for key in REPEATED if model.has_valid(key))
    tables = (table for key in keys for table in getattr(model.settings, key))
    if not any(each.repeat or PLACEHOLDER.search(getattr(each, "at", "") or "") for each in tables):
        return model
    expanded: EffectiveSettings = import_plugin("repeat").expand_repeats(model)
    return expanded


#: Python's own containers; user code creates all others.
_BUILT_IN = ("list", "tuple", "dict")


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


def complete_input_names(model: EffectiveSettings) -> EffectiveSettings:
    """Return the model with a name for each input; report inputs that can have none."""
    if not model.has_valid("inputs") or all(table.name for table in model.settings.inputs):
        return model
    completed: EffectiveSettings = import_plugin("forward").complete_input_names(model)
    return completed


def resolve_containers(model: EffectiveSettings) -> tuple[Container, ...]:
    """Return every container with a type, after a check of its reference."""
    containers = []
    for index, table in enumerate(model.settings.containers):
        kind, path = table.type, ("containers", index, "type")
        if ":" in kind:
            kind = model.check_source(path, kind)
            if model.has_valid("capture") and model.settings.capture == "script":
                message = "a scripted model takes only tuples, lists and dicts"
                model.add_problem(path, message)
        elif kind not in _BUILT_IN:
            names = ", ".join(quote(name) for name in _BUILT_IN)
            message = f'expected {names} or "file.py:name", got {quote(kind)}'
            model.add_problem(path, message)
        containers.append(Container(at=table.at, type=kind))
    return tuple(containers)


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
