"""Resolve tolerances into a general bound and bounds by dtype and by device."""

from __future__ import annotations

from collections.abc import Collection

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.resolved.model import Bound, Tolerance
from exporter.manifest.rules.fills import FLOATS
from exporter.manifest.schema.tables import BoundTable, ToleranceTable
from exporter.manifest.syntax.message_format import KeyPath


def resolve_tolerance(
    model: EffectiveSettings, path: KeyPath, table: ToleranceTable, devices: Collection[str]
) -> Tolerance:
    """Return the tolerance at `path`.

    Args:
        model: The settings of the model.
        path: The path of the table, for messages.
        table: The tolerance of the user.
        devices: Every device of the project.
    """
    general = _resolve_bound(table)
    tables = table.__pydantic_extra__ or {}
    for name in tables:
        if name not in FLOATS and name not in devices:
            hint = suggest_nearest(name, [*FLOATS, *devices])
            model.add_problem((*path, name), f"is neither a floating dtype nor a device{hint}")
    return Tolerance(
        atol=general.atol,
        rtol=general.rtol,
        outside=general.outside,
        noise=general.noise,
        steps=general.steps,
        by_dtype={name: _resolve_bound(bound) for name, bound in tables.items() if name in FLOATS},
        by_device={
            name: _resolve_bound(bound) for name, bound in tables.items() if name in devices
        },
    )


def _resolve_bound(table: BoundTable) -> Bound:
    """Return the bound; if only one of `atol` and `rtol` is set, the other one is 0."""
    is_explicit = table.atol is not None or table.rtol is not None
    return Bound(
        atol=table.atol or 0.0 if is_explicit else None,
        rtol=table.rtol or 0.0 if is_explicit else None,
        outside=table.outside,
        noise=table.noise,
        steps=table.steps,
    )
