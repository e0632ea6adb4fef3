"""The rules of the key `passes`, and the files that a job keeps for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.jobs import JobFolder
from exporter.manifest import FilePass
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.syntax.values import KeyPath

#: The key, and the name of the folder with the files before and after each pass.
PASSES = "passes"


def resolve(model: EffectiveSettings) -> dict[str, Any]:
    """Return the functions relative to the entry, and the entry of which this is a variant."""
    calls = []
    for index, item in enumerate(model.settings.passes):
        path: KeyPath = (PASSES, index)
        arguments = {} if isinstance(item, str) else dict(item.__pydantic_extra__ or {})
        call = model.check_function(path, item if isinstance(item, str) else item.call)
        if reserved := arguments.keys() & {"source", "target", "samples"}:
            message = "is a parameter that the tool sets; give the argument another name"
            model.add_problem((*path, min(reserved)), message)
        calls.append(FilePass(call=call, arguments=arguments))
    is_variant = bool(calls) and model.is_own((PASSES,))
    parent = getattr(model.entry.table, "extends", "") if is_variant else ""
    return {PASSES: tuple(calls), "parent": parent}


def find_files(folder: JobFolder, opset: int) -> Path:
    """Return the folder of the files before and after each pass; removed if all is right."""
    return folder.path / PASSES / str(opset)
