"""The patches around a capture, and the draft export with its report, which is not public.

A draft export goes on where `torch.export.export` fails: it replaces values that decide by those of
the example, and reports each place. Its log files go to a folder that is removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._logging import structured

from exporter.worker.torch_private.guards import is_enabled, replace_attribute


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
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            with _close_log():
                return torch.export.draft_export(model, args, kwargs=kwargs, **options)
        finally:
            tempfile.tempdir = before


@contextmanager
def _close_log() -> Iterator[None]:
    """Close the log file of a draft export at its end; torch leaves it open."""
    from torch.export import _draft_export

    handler: Any = vars(_draft_export).get("CaptureStructuredTrace")
    if handler is None:
        yield
        return

    def store(self: Any, *error: object) -> None:
        ended.append(self)  # torch reads the name of the file once more
        leave(self, *error)

    leave, ended = handler.__exit__, list[Any]()
    try:
        with replace_attribute(handler, "__exit__", store):
            yield
    finally:
        for each in ended:
            each.close()


def read_draft_report(program: Any) -> tuple[DraftFailure, ...]:
    """Return the report of a draft export; nothing if this version of torch has another report."""
    report = getattr(program, "_report", None)
    # The report contains only names that this process logged for the first time.
    files = {number: name for name, number in vars(structured).get("INTERN_TABLE", {}).items()}
    files |= getattr(report, "str_to_filename", {})
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


@contextmanager
def patch_capture(*, dynamic: bool) -> Iterator[None]:
    """Apply the patches of the public export; `dynamic` if an axis is dynamic.

    `torch.onnx.export` captures and decomposes a model again for each opset. The worker captures it
    once, with the same patches: recurrent layers over a dynamic sequence become a loop, sizes 0 and
    1 are not special, and `torch.onnx.is_in_onnx_export()` is true.
    """
    with ExitStack() as patches:
        if is_enabled("capture"):
            from torch.fx.experimental import _config
            from torch.onnx._internal.exporter import _flags

            # torch gives its configuration modules a `patch` that their types do not show.
            patched = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
            patches.enter_context(patched)
            patches.enter_context(replace_attribute(_flags, "_is_onnx_exporting", True))
            if dynamic:
                from torch.export import _patches

                patches.enter_context(_patches.register_lstm_while_loop_decomposition())
                patches.enter_context(_patches.register_gru_while_loop_decomposition())
        yield


def defers_guards() -> bool:
    """Return True if the public export turns an unproven condition on sizes into an assertion.

    ONNX has no assertions, so the condition is missing in the file. The checks cover it.
    """
    if not is_enabled("capture"):
        return False
    from torch.onnx import _flags

    return bool(_flags.PREFER_DEFERRED_RUNTIME_ASSERTS_OVER_GUARDS)
