"""Split off; to be described."""

from __future__ import annotations

from exporter.build import (
    BuildFolder,
    BuildOptions,
    Decisions,
    RecordValidator,
    Stored,
    decide,
)
from exporter.cli.options.selection import (
    today,
)
from exporter.manifest import Manifest
from exporter.planning.plan import Plan


def decisions_for(manifest: Manifest, plan: Plan, wish: BuildOptions) -> Decisions:
    """What an export would do now."""
    stored = Stored(BuildFolder.of(manifest.project))
    return decide(plan, stored, RecordValidator(manifest, today()), wish)
