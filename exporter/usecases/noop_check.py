"""Find the summary of the last export if nothing changed since."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from exporter.cache.noop_snapshot import ExportSummary, load_snapshot
from exporter.core.toml_table import read_settings


def load_noop_summary(root: Path, today: date) -> ExportSummary | None:
    """Return the summary of the last export, or None if this export must compare its inputs."""
    return load_snapshot(root.absolute(), find_build_folder(root), today.isoformat())


def list_variables(root: Path) -> tuple[str, ...]:
    """Return the environment variables for workers, none if the settings are invalid.

    The first worker starts before the project is read.
    """
    names = read_settings(root).get("environment")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def find_build_folder(root: Path) -> Path:
    """Return the build folder of the project, the default if the settings are invalid."""
    name = read_settings(root).get("build")
    return root.absolute() / (name if isinstance(name, str) else "build")
