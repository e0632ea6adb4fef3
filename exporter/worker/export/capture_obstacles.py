"""The obstacles of a capture: the places in a model that torch.export cannot prove."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.worker.process.error_origin import find_source_line
from exporter.worker.torch_private.draft_export import DraftFailure, read_draft_report

#: The end of a long expression is left out.
_MOST_CHARACTERS = 80


def list_obstacles(program: Any, root: Path) -> tuple[str, ...]:
    """Return a line for each place; paths are relative to the root."""
    lines = (_describe(failure, root) for failure in read_draft_report(program))
    return tuple(dict.fromkeys(line for line in lines if line))


def _describe(failure: DraftFailure, root: Path) -> str:
    """Return the line of one place, or "" if another one contains it."""
    data = failure.data
    trace = "\n".join(f'File "{file}", line {line}' for file, line, _ in failure.frames)
    source = find_source_line(trace, root)
    number = source.rpartition(":")[2]
    code = next((text for _, line, text in failure.frames if str(line) == number), "")
    prefix = f'{source}: "{code}"' if code else source or "a line outside of the model"
    expression = str(data.get("expr", ""))[:_MOST_CHARACTERS]
    match failure.kind:
        case "DATA_DEPENDENT_ERROR":
            return f"{prefix} depends on values: {expression} was {data.get('result')}"
        case "GUARD_ADDED" if data.get("prefix") != "runtime_assert":
            sizes = ", ".join(str(each) for each in data.get("symbol_to_sources", {}).values())
            return f"{prefix} limits sizes ({sizes}): {expression}"
        case "MISSING_FAKE_KERNEL":
            return f"the operator {data.get('op')} has no fake kernel; add one by register_fake"
        case "MISMATCHED_FAKE_KERNEL":
            return f"the fake kernel of {data.get('op')} is wrong: {data.get('reason')}"
    return ""
