"""The draft export of torch, and the unsound places in its report, which is not public.

A draft export goes on where `torch.export.export` fails: it replaces values that decide by those of
the example, and reports each place. Its log files go to a folder that is removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from exporter.worker.process.source_lines import find_source_line

#: The end of a long expression is left out.
_MOST_CHARACTERS = 80


def export_draft(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
) -> Any:
    """Return the program of a draft export."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            return torch.export.draft_export(model, args, kwargs=kwargs, **options)
        finally:
            tempfile.tempdir = before


def list_unsound_places(program: Any, root: Path) -> tuple[str, ...]:
    """Return a line for each unsound place of a draft export, with file and line.

    Returns:
        Nothing if the program is sound, or if this version of torch has another report.
    """
    report = getattr(program, "_report", None)
    failures, files = getattr(report, "failures", ()), getattr(report, "str_to_filename", {})
    lines = (
        line
        for failure in failures
        for line in _describe(str(failure.failure_type), failure.data, files, root)
    )
    return tuple(dict.fromkeys(lines))


def _describe(kind: str, data: dict[str, Any], files: dict[int, str], root: Path) -> Iterator[str]:
    frames = [frame for frame in data.get("user_stack") or () if frame["filename"] in files]
    trace = "\n".join(f'File "{files[each["filename"]]}", line {each["line"]}' for each in frames)
    place = find_source_line(trace, root)
    number = place.rpartition(":")[2]
    code = next((each["loc"] for each in frames if str(each["line"]) == number), "")
    prefix = f'{place}: "{code}"' if code else place or "a line outside of the model"
    expression = str(data.get("expr", ""))[:_MOST_CHARACTERS]
    if kind == "DATA_DEPENDENT_ERROR":
        yield f"{prefix} depends on values: {expression} was {data.get('result')}"
    elif kind == "GUARD_ADDED" and data.get("prefix") != "runtime_assert":
        sizes = ", ".join(str(source) for source in data.get("symbol_to_sources", {}).values())
        yield f"{prefix} limits sizes ({sizes}): {expression}"
    elif kind == "MISSING_FAKE_KERNEL":
        yield f"the operator {data.get('op')} has no fake kernel; add one by register_fake"
    elif kind == "MISMATCHED_FAKE_KERNEL":
        yield f"the fake kernel of {data.get('op')} is wrong: {data.get('reason')}"
