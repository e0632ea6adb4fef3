"""A call taken apart: its tensors, its other values, and what they stand in.

In: what user code returned. Out: `FingerprintCache`, each by its place: `args[0]`, `kwargs.past[1].key`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch

from exporter.manifest.syntax.call_paths import Step, format_call_path, parse_call_path
from exporter.records.record import Stage
from exporter.worker.process.failure import Failure

_EXPECTED = "tensors, numbers, text and None in tuples, lists, dicts, dataclasses and named tuples"


@dataclass(slots=True)
class FlattenedCall:
    """A call taken apart, by place, in the order in which it is flattened."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    containers: dict[str, str] = field(default_factory=dict)


def flatten_call(parts: FlattenedCall, root: str, steps: tuple[Step, ...], value: Any) -> None:
    """Adds what `value` holds to `parts`.

    Raises:
        Failure: of stage `source`, where a container is of a class that no table could name.
    """
    at = format_call_path(root, steps)
    match value:
        case torch.Tensor():
            parts.tensors[at] = value
        case None | bool() | int() | float() | str():
            parts.constants[at] = value
        case _:
            kind, inner = _container(at, value)
            if steps and (kind != _default(inner) or not inner):
                parts.containers[at] = kind
            for step, item in inner:
                flatten_call(parts, root, (*steps, step), item)


def _default(inner: list[tuple[Step, Any]]) -> str:
    """What a place is without a word: a tuple of positions, or a dict of keys."""
    return "tuple" if all(isinstance(step, int) for step, _ in inner) else "dict"


def _container(at: str, value: Any) -> tuple[str, list[tuple[Step, Any]]]:
    """What a container is, and what it holds."""
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    match value:
        case tuple() if hasattr(value, "_fields"):
            return kind, list(enumerate(value))
        case tuple() | list():
            return type(value).__name__, list(enumerate(value))
        case dict():
            return "dict", [(_key(at, key), item) for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (each.name for each in dataclasses.fields(value) if each.init)
        return kind, [(name, getattr(value, name)) for name in fields]
    raise Failure(
        Stage.SOURCE,
        f"inputs_from: {at} is a {type(value).__name__}, expected {_EXPECTED}; for another class, "
        "write `inputs` with `at`, and `containers`",
    )


def _key(at: str, key: object) -> Step:
    if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
        return key
    try:
        parse_call_path(f"kwargs.{key}")
    except ValueError:
        message = f"inputs_from: {at} has the key {key!r}, which is no name"
        raise Failure(Stage.SOURCE, message) from None
    return str(key)
