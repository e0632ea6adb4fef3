"""Split off; to be described."""

from __future__ import annotations

from pathlib import Path

import exporter


def packaged_templates() -> Path:
    """The templates that come with us: inside the wheel, or beside the package in a checkout."""
    package = Path(exporter.__path__[0])
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"
