"""`expect` and `skip` in, with their conditions turned into the opsets of the model, out."""

from __future__ import annotations

from fnmatch import fnmatchcase

from exporter.core.errors import nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.schema.overrides import OverrideTable
from exporter.manifest.schema.tables import ExpectTable, SkipTable
from exporter.manifest.spec.model import Expectation, Skip
from exporter.manifest.syntax.message_format import KeyPath, listed, quoted
from exporter.manifest.syntax.opsets import spelled


def resolved_expectations(model: EffectiveSettings) -> tuple[Expectation, ...]:
    """The foreseen failures, in order."""
    found = []
    for index, table in enumerate(model.settings.expect):
        found.append(
            Expectation(
                opsets=opsets_of(model, ("expect", index), table),
                device=table.device,
                stage=table.stage,
                check=table.check,
                match=table.match,
                reason=table.reason,
                issue=table.issue,
                until=table.until,
            )
        )
    return tuple(found)


def resolved_skips(model: EffectiveSettings) -> tuple[Skip, ...]:
    """The cells that are not run, in order."""
    return tuple(
        Skip(
            opsets=opsets_of(model, ("skip", index), table),
            device=table.device,
            reason=table.reason,
        )
        for index, table in enumerate(model.settings.skip)
    )


def opsets_of(
    model: EffectiveSettings, place: KeyPath, table: ExpectTable | SkipTable | OverrideTable
) -> tuple[int, ...] | None:
    """The opsets of the model that are meant; checks the device on the way."""
    devices = model.settings.devices
    if model.has("devices") and not any(fnmatchcase(name, table.device) for name in devices):
        hint = nearest(table.device, devices)
        known = listed(devices)
        model.refuse(
            (*place, "device"), f"{quoted(table.device)} is none of the devices: {known}{hint}"
        )
    if table.opset is None:
        return None
    opsets = tuple(opset for opset in table.opset if opset in model.settings.opsets)
    if not opsets and model.has("opsets"):
        offered = spelled(model.settings.opsets)
        model.refuse((*place, "opset"), f"is none of the model's opsets, {offered}")
    return opsets
