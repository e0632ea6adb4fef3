"""The folder of the packaged templates; separate from `templates.py`, which imports jinja2."""

from __future__ import annotations

from pathlib import Path

import exporter


def find_packaged_templates() -> Path:
    """Return the folder inside the wheel, or next to the package in a checkout."""
    package = Path(exporter.__path__[0])
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"
