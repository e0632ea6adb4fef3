"""Split off; to be described."""

from __future__ import annotations

from exporter.build import (
    BuildFolder,
    BuildOptions,
    Decisions,
    RecordValidator,
    StoredRecords,
    decide,
)
from exporter.cli.options.selection import (
    get_today,
)
from exporter.manifest import Manifest
from exporter.planning.plan import Plan


def decisions_for(manifest: Manifest, plan: Plan, wish: BuildOptions) -> Decisions:
    """What an export would do now."""
    stored = StoredRecords(BuildFolder.from_project(manifest.project))
    return decide(plan, stored, RecordValidator(manifest, get_today()), wish)
