"""The rules of the key `passes`."""

from __future__ import annotations

from typing import Any

from exporter.manifest.resolved.model import FilePass
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.syntax.values import KeyPath

_KEY = "passes"


def resolve(entry: EffectiveSettings) -> dict[str, Any]:
    """Return the functions relative to the entry, and the entry of which this is a variant."""
    calls = []
    for index, item in enumerate(entry.settings.passes):
        key_path: KeyPath = (_KEY, index)
        arguments = {} if isinstance(item, str) else dict(item.__pydantic_extra__ or {})
        call = entry.check_function(key_path, item if isinstance(item, str) else item.call)
        if reserved := arguments.keys() & {"source", "target", "samples"}:
            message = "is a parameter that the tool sets; give the argument another name"
            entry.add_problem((*key_path, min(reserved)), message)
        calls.append(FilePass(call=call, arguments=arguments))
    is_variant = bool(calls) and entry.is_own((_KEY,))
    parent = getattr(entry.own_layer.table, "extends", "") if is_variant else ""
    return {_KEY: tuple(calls), "parent": parent}
