"""Resolve the settings of some cells: overrides, expectations and skips, and tolerances."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from exporter.core.device_name import DeviceName
from exporter.core.errors import suggest_name, suggest_nearest
from exporter.manifest.resolved.model import Bound, Expectation, Override, Skip, Tolerance
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.schema.entry import ExpectTable, OverrideTable, Settings, SkipTable
from exporter.manifest.schema.tables import BoundTable, ToleranceTable
from exporter.manifest.syntax.fields import FLOATS
from exporter.manifest.syntax.values import KeyPath, join_words, quote
from exporter.manifest.syntax.versions import format_opsets


def resolve_expectations(model: EffectiveSettings) -> tuple[Expectation, ...]:
    """Return the foreseen failures, in order."""
    return tuple(
        Expectation.from_fields(
            table,
            opsets=resolve_condition(model, ("expect", index), table),
            toolchain=check_toolchain(model, ("expect", index), table),
            checks=table.check or (),
        )
        for index, table in enumerate(model.settings.expect)
    )


def resolve_skips(model: EffectiveSettings) -> tuple[Skip, ...]:
    """Return the conditions of cells that are not run, in order."""
    return tuple(
        Skip.from_fields(
            table,
            opsets=resolve_condition(model, ("skip", index), table),
            toolchain=check_toolchain(model, ("skip", index), table),
        )
        for index, table in enumerate(model.settings.skip)
    )


def check_toolchain(model: EffectiveSettings, path: KeyPath, table: ExpectTable | SkipTable) -> str:
    """Return the pattern of toolchains; report one that matches no device of the model."""
    devices = model.settings.devices
    names = dict.fromkeys(DeviceName(name).packages for name in devices)
    if table.toolchain != "*" and model.has_valid("devices"):
        if not any(fnmatchcase(name, table.toolchain) for name in names):
            hint = suggest_name(table.toolchain, names)
            message = f"{quote(table.toolchain)} matches no toolchain of the devices "
            message += f"{join_words(devices)}{hint}"
            model.add_problem((*path, "toolchain"), message)
        elif not any(DeviceName(name).matches(table.device, table.toolchain) for name in devices):
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
        DeviceName(name).matches(table.device) for name in devices
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


def resolve_tolerance(model: EffectiveSettings, path: KeyPath, table: ToleranceTable) -> Tolerance:
    """Return the tolerance at `path`."""
    tables, devices = table.__pydantic_extra__ or {}, model.context.devices
    for name in tables:
        if name not in FLOATS and name not in devices:
            hint = suggest_nearest(name, [*FLOATS, *devices])
            model.add_problem((*path, name), f"is neither a floating dtype nor a device{hint}")
    return Tolerance.from_fields(
        _resolve_bound(table),
        by_dtype={name: _resolve_bound(each) for name, each in tables.items() if name in FLOATS},
        by_device={name: _resolve_bound(each) for name, each in tables.items() if name in devices},
    )


def _resolve_bound(table: BoundTable) -> Bound:
    """Return the bound; if only one of `atol` and `rtol` is set, the other one is 0."""
    is_explicit = table.atol is not None or table.rtol is not None
    return Bound.from_fields(
        table,
        atol=table.atol or 0.0 if is_explicit else None,
        rtol=table.rtol or 0.0 if is_explicit else None,
    )


_CONDITIONS = ("opset", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The opsets of a model with the same exporter and capture."""

    settings: Settings
    """The settings of these opsets; `opsets` contains only these."""
    override: int | None
    """The override that sets `exporter` or `capture`; None if the entry sets them."""

    def find_path(self, key: str) -> KeyPath | None:
        """Return the path of `key` in the override, or None if there is no override."""
        return None if self.override is None else ("overrides", self.override, key)


def resolve_overrides(model: EffectiveSettings) -> tuple[Override, ...]:
    overrides = []
    names = [output.name for output in model.settings.outputs]
    for index, table in enumerate(model.settings.overrides):
        path: KeyPath = ("overrides", index)
        _check_keys(model, path, table)
        outputs = {}
        for number, output in enumerate(table.outputs):
            output_path = (*path, "outputs", number)
            if output.name not in names and model.has_valid("outputs"):
                message = f"no output has the name {quote(output.name)}"
                hint = suggest_name(output.name, names)
                model.add_problem((*output_path, "name"), f"{message}{hint}")
            tolerance_path = (*output_path, "tolerance")
            outputs[output.name] = resolve_tolerance(model, tolerance_path, output.tolerance)
        tolerance = None
        if table.tolerance:
            tolerance = resolve_tolerance(model, (*path, "tolerance"), table.tolerance)
        overrides.append(
            Override.from_fields(
                table,
                opsets=resolve_condition(model, path, table),
                options=model.check_module_types((*path, "options"), table.options.list_explicit()),
                tolerance=tolerance,
                outputs=outputs,
            )
        )
    return tuple(overrides)


def split_variants(settings: Settings) -> tuple[Variant, ...]:
    """Group the opsets of a model by the exporter and capture of its overrides."""
    groups: dict[tuple[object, object, int | None], list[int]] = {}
    for opset in settings.opsets:
        exporter, capture, origin = settings.exporter, settings.capture, None
        for index, table in enumerate(settings.overrides):
            if table.opset is not None and opset not in table.opset:
                continue
            if table.exporter is not None:
                # A capture belongs to one exporter.
                exporter, capture, origin = table.exporter, None, index
            if table.capture is not None:
                capture, origin = table.capture, index
        groups.setdefault((exporter, capture, origin), []).append(opset)
    return tuple(
        Variant(
            settings=settings.model_copy(
                update={"exporter": exporter, "capture": capture, "opsets": tuple(opsets)}
            ),
            override=origin,
        )
        for (exporter, capture, origin), opsets in groups.items()
    )


def _check_keys(model: EffectiveSettings, path: KeyPath, table: OverrideTable) -> None:
    keys = table.list_explicit()
    if not any(key in keys for key in _CONDITIONS):
        message = "needs `opset` or `device`; write settings for all cells in the entry itself"
        model.add_problem(path, message)
    if all(key in _CONDITIONS for key in keys):
        names = join_words((f"`{key}`" for key in (*table.file_keys, "tolerance", "outputs")), "or")
        model.add_problem(path, f"changes nothing; needs {names}")
    for key in table.file_keys:
        if key in keys and table.device != "*":
            message = "all devices use the same file of an opset; remove `device` or this key"
            model.add_problem((*path, key), message)
