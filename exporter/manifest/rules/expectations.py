"""`expect` and `skip` in, with their conditions turned into the opsets of the model, out."""

from __future__ import annotations

from fnmatch import fnmatchcase

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.schema.overrides import OverrideTable
from exporter.manifest.schema.tables import ExpectTable, SkipTable
from exporter.manifest.spec.model import Expectation, Skip
from exporter.manifest.syntax.message_format import KeyPath, join_words, quote
from exporter.manifest.syntax.opsets import format_opsets


def resolve_expectations(model: EffectiveSettings) -> tuple[Expectation, ...]:
    """The foreseen failures, in order."""
    found = []
    for index, table in enumerate(model.settings.expect):
        found.append(
            Expectation(
                opsets=resolve_condition(model, ("expect", index), table),
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


def resolve_skips(model: EffectiveSettings) -> tuple[Skip, ...]:
    """The cells that are not run, in order."""
    return tuple(
        Skip(
            opsets=resolve_condition(model, ("skip", index), table),
            device=table.device,
            reason=table.reason,
        )
        for index, table in enumerate(model.settings.skip)
    )


def resolve_condition(
    model: EffectiveSettings, place: KeyPath, table: ExpectTable | SkipTable | OverrideTable
) -> tuple[int, ...] | None:
    """The opsets of the model that are meant; checks the device on the way."""
    devices = model.settings.devices
    if model.has("devices") and not any(fnmatchcase(name, table.device) for name in devices):
        hint = suggest_nearest(table.device, devices)
        known = join_words(devices)
        model.add_problem(
            (*place, "device"), f"{quote(table.device)} is none of the devices: {known}{hint}"
        )
    if table.opset is None:
        return None
    opsets = tuple(opset for opset in table.opset if opset in model.settings.opsets)
    if not opsets and model.has("opsets"):
        offered = format_opsets(model.settings.opsets)
        model.add_problem((*place, "opset"), f"is none of the model's opsets, {offered}")
    return opsets
