"""The draft export of torch, and its report, which is not public.

A draft export goes on where `torch.export.export` fails: it replaces values that decide by those of
the example, and reports each place. Its log files go to a folder that is removed.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class DraftFailure:
    """One place at which `torch.export.export` would fail."""

    kind: str
    """`DATA_DEPENDENT_ERROR`, `GUARD_ADDED` and others."""
    data: dict[str, Any]
    frames: tuple[tuple[str, int, str], ...]
    """File, line and code of each frame, outermost first."""


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


def read_draft_report(program: Any) -> tuple[DraftFailure, ...]:
    """Return the report of a draft export.

    Returns:
        Nothing if the program is complete, or if this version of torch has another report.
    """
    report = getattr(program, "_report", None)
    files = getattr(report, "str_to_filename", {})
    return tuple(
        DraftFailure(
            kind=str(failure.failure_type),
            data=failure.data,
            frames=tuple(
                (files[frame["filename"]], int(frame["line"]), str(frame["loc"]))
                for frame in failure.data.get("user_stack") or ()
                if frame["filename"] in files
            ),
        )
        for failure in getattr(report, "failures", ())
    )
