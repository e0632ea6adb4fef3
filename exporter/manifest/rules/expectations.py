"""Resolve `expect` and `skip`, with their conditions as opsets of the model."""

from __future__ import annotations

from fnmatch import fnmatchcase

from exporter.core.errors import suggest_name, suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.resolved.model import Expectation, Skip
from exporter.manifest.schema.entry import ExpectTable, OverrideTable, SkipTable
from exporter.manifest.syntax.opsets import format_opsets
from exporter.manifest.syntax.values import (
    CURRENT_TOOLCHAIN,
    KeyPath,
    join_words,
    matches_device,
    matches_toolchain,
    quote,
    split_device,
)


def resolve_expectations(model: EffectiveSettings) -> tuple[Expectation, ...]:
    """Return the foreseen failures, in order."""
    return tuple(
        Expectation(
            opsets=resolve_condition(model, ("expect", index), table),
            device=table.device,
            toolchain=check_toolchain(model, ("expect", index), table),
            stage=table.stage,
            checks=table.check or (),
            match=table.match,
            reason=table.reason,
            issue=table.issue,
            until=table.until,
            torch=table.torch,
        )
        for index, table in enumerate(model.settings.expect)
    )


def resolve_skips(model: EffectiveSettings) -> tuple[Skip, ...]:
    """Return the conditions of cells that are not run, in order."""
    return tuple(
        Skip(
            opsets=resolve_condition(model, ("skip", index), table),
            device=table.device,
            toolchain=check_toolchain(model, ("skip", index), table),
            reason=table.reason,
        )
        for index, table in enumerate(model.settings.skip)
    )


def check_toolchain(model: EffectiveSettings, path: KeyPath, table: ExpectTable | SkipTable) -> str:
    """Return the pattern of toolchains; report one that matches no device of the model."""
    devices = model.settings.devices
    names = dict.fromkeys(split_device(name)[1] or CURRENT_TOOLCHAIN for name in devices)
    if table.toolchain != "*" and model.has_valid("devices"):
        if not any(fnmatchcase(name, table.toolchain) for name in names):
            hint = suggest_name(table.toolchain, names)
            message = f"{quote(table.toolchain)} matches no toolchain of the devices "
            message += f"{join_words(devices)}{hint}"
            model.add_problem((*path, "toolchain"), message)
        elif not any(
            matches_device(name, table.device) and matches_toolchain(name, table.toolchain)
            for name in devices
        ):
            message = f"no device of {join_words(devices)} matches both {quote(table.toolchain)} "
            message += f"and `device`, {quote(table.device)}; change one of them"
            model.add_problem((*path, "toolchain"), message)
    return table.toolchain


def resolve_condition(
    model: EffectiveSettings, path: KeyPath, table: ExpectTable | SkipTable | OverrideTable
) -> tuple[int, ...] | None:
    """Check the device of a condition and return its opsets, or None if it has no opset."""
    devices = model.settings.devices
    if model.has_valid("devices") and not any(
        matches_device(name, table.device) for name in devices
    ):
        hint = suggest_nearest(table.device, devices)
        message = f"{quote(table.device)} matches no device of {join_words(devices)}{hint}"
        model.add_problem((*path, "device"), message)
    if table.opset is None:
        return None
    opsets = tuple(opset for opset in table.opset if opset in model.settings.opsets)
    # A condition of the defaults is for all models, of which some may have other opsets.
    if not opsets and model.has_valid("opsets") and model.is_own(path):
        promised = format_opsets(model.settings.opsets)
        model.add_problem(
            (*path, "opset"), f"matches none of the model's opsets {promised}; use one of them"
        )
    return opsets
