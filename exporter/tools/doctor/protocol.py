"""What a process that loads torch and the runtimes is asked, and what it answers.

In: nothing. Out: `Question` and `ProbeResponse`, which cross as JSON.
"""

from __future__ import annotations

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import Device


class Question(FrozenModel):
    """What to try."""

    device: Device | None = None
    """Where a small file is run; None: only what every worker imports is imported."""


class ProbeResponse(FrozenModel):
    """What came of it."""

    imported: dict[str, str] = Field(default_factory=dict)
    """Version by package."""
    failed: dict[str, str] = Field(default_factory=dict)
    """Why a package cannot be imported, by its name."""
    is_known_torch: bool = False
    """Whether a capture can serve all opsets; see `worker/torch_internals.py`."""
    known_torch: Items[str] = ()
    """The versions of torch of which that is so: `2.13`."""
    providers: Items[str] = ()
    """Execution providers that this ONNX Runtime was built with."""
    ran_on: str = ""
    """What ran the small file, and computed it right."""
    problem: str = ""
    """Why nothing did."""
