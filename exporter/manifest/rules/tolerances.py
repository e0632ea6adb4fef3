"""Tolerances as written in, as bounds for all, by dtype and by device, out."""

from __future__ import annotations

from collections.abc import Collection

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.fills import FLOATS
from exporter.manifest.schema.tables import BoundTable, ToleranceTable
from exporter.manifest.spec.model import Bound, Tolerance
from exporter.manifest.syntax.message_format import KeyPath


def resolve_tolerance(
    model: EffectiveSettings, path: KeyPath, table: ToleranceTable, devices: Collection[str]
) -> Tolerance:
    """The tolerance at `path`.

    Args:
        model: Whose tolerance it is.
        path: Where it stands.
        table: What stands there.
        devices: Every device of the project.
    """
    own = _bound(table)
    special = table.__pydantic_extra__ or {}
    for name in special:
        if name not in FLOATS and name not in devices:
            known = suggest_nearest(name, [*FLOATS, *devices])
            model.add_problem((*path, name), f"is neither a floating dtype nor a device{known}")
    return Tolerance(
        atol=own.atol,
        rtol=own.rtol,
        outside=own.outside,
        noise=own.noise,
        by_dtype={name: _bound(bound) for name, bound in special.items() if name in FLOATS},
        by_device={name: _bound(bound) for name, bound in special.items() if name in devices},
    )


def _bound(table: BoundTable) -> Bound:
    """By hand both numbers count, and the one that is not given is 0."""
    by_hand = table.atol is not None or table.rtol is not None
    return Bound(
        atol=table.atol or 0.0 if by_hand else None,
        rtol=table.rtol or 0.0 if by_hand else None,
        outside=table.outside,
        noise=table.noise,
    )
