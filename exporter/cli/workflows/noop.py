"""What the last export said, as long as nothing that it read was touched.

In: the project's folder. Out: its last words, or None. It knows of the project's settings only
where the build folder is: whatever else they say was looked at when the note was written.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import tomli

from exporter.cache.noop_snapshot import ExportSummary, load_snapshot

_USUAL = "build"


def load_noop_summary(root: Path, today: date) -> ExportSummary | None:
    """What the last export said, if this one would say the same; None where it has to look."""
    return load_snapshot(root.absolute(), build_folder(root), today.isoformat())


def build_folder(root: Path) -> Path:
    """Where the note lies; settings that cannot be read have none, and get their message later."""
    try:
        table: object = tomli.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        table = None
    for key in ("tool", "exporter", "build"):
        table = table.get(key) if isinstance(table, dict) else None
    return root.absolute() / (table if isinstance(table, str) else _USUAL)
