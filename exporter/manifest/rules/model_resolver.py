"""Resolve the effective settings of a model into its `ModelSpec`, and report every problem.

A rule runs only if its inputs are valid, to avoid follow-up problems: an invalid list of inputs
causes no message about opsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.core.known_names import Release
from exporter.manifest.resolved.call import Constant, Fill, Input
from exporter.manifest.resolved.model import ModelSpec, Output
from exporter.manifest.rules.axes import resolve_axes
from exporter.manifest.rules.devices import add_consumer_devices, format_unknown_device
from exporter.manifest.rules.fills import (
    check_masks,
    resolve_cases,
    resolve_comparators,
    resolve_fill,
    resolve_inputs_from,
)
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.overrides import (
    resolve_expectations,
    resolve_overrides,
    resolve_skips,
    resolve_tolerance,
)
from exporter.manifest.rules.references import References
from exporter.manifest.rules.signature import (
    check_inputs,
    resolve_call_paths,
    resolve_containers,
    resolve_dtype,
    resolve_shapes,
)
from exporter.manifest.rules.sources import (
    check_exporter,
    check_saved_source,
    check_sequences,
    has_artifact,
    resolve_artifact,
    resolve_custom_ops,
    resolve_depends,
    resolve_options,
    resolve_parameters,
    resolve_weights,
)
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import InputTable
from exporter.manifest.syntax.values import KeyPath, quote

#: Other places for a required key.
_OTHER_PLACES = {"opsets": " here, in [defaults] or in [tool.exporter]"}
#: Values of required keys for messages.
_EXAMPLES = {
    "source": '"net.py:Net"',
    "inputs": '[{ name = "x", shape = ["batch", 4] }]',
    "outputs": '[{ name = "y", shape = ["batch", 3] }]',
    "opsets": "[17, 18]",
}
#: Keys that the spec takes without a change.
_UNCHANGED_KEYS = (
    "description", "owner", "tags", "init", "seed", "mode", "precision", "export_device",
    "export_state", "exporter", "capture", "opsets", "devices", "ir_version", "timeout", "memory",
    "thorough", "measure",
)  # fmt: skip

#: Keys whose rules need nothing but the entry.
_RESOLVERS: dict[str, Callable[[EffectiveSettings], object]] = {
    "expect": resolve_expectations,
    "skip": resolve_skips,
    "parameters": resolve_parameters,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveContext:
    """The things that models refer to."""

    devices: Collection[str]
    """Every device of the project, by name."""
    references: References
    pinned: Mapping[str, Release] = field(default_factory=dict)
    """The devices whose environment pins a release of ONNX Runtime."""
    environment: tuple[str, ...] = ()
    """Environment variables that the project lists for workers."""


def resolve_model(model: EffectiveSettings, context: ResolveContext) -> ModelSpec | None:
    """Return the spec of the model, or None if it has a problem."""
    settings, references = model.settings, context.references
    _check_required_keys(model)
    _check_devices(model, context.devices)
    fields: dict[str, Any] = {key: getattr(settings, key) for key in _UNCHANGED_KEYS}
    if model.has_valid("consumers"):
        fields["consumers"] = settings.consumers
        fields["devices"] = add_consumer_devices(
            settings.devices, settings.consumers, context.pinned
        )
    fields |= _resolve_source(model, references)
    for key, resolve in _RESOLVERS.items():
        if model.has_valid(key):
            fields[key] = resolve(model)
    if model.has_valid("options"):
        fields["options"] = resolve_options(model, references)
    if model.has_valid("custom_ops"):
        fields["custom_ops"] = resolve_custom_ops(model, references)
    if model.has_valid("overrides"):
        fields["overrides"] = resolve_overrides(model, context.devices, references)
    if model.has_valid("depends"):
        fields["depends"] = resolve_depends(model, references, context.environment)
    if model.has_valid("tolerance"):
        fields["tolerance"] = resolve_tolerance(
            model, ("tolerance",), settings.tolerance, context.devices
        )
    if model.has_valid("containers"):
        fields["containers"] = resolve_containers(model, references)
    if model.has_valid("inputs_from"):
        fields["inputs_from"] = resolve_inputs_from(
            model, ("inputs_from",), settings.inputs_from, references
        )
    fields |= _resolve_signature(model, context)
    if model.report or model.broken:
        return None
    return ModelSpec(
        id=model.id,
        manifest=model.entry.file.name,
        line=model.entry.file.lines[model.entry.path],
        constants=tuple(Constant(at=each.at, value=each.value) for each in settings.constants),
        **fields,
    )


def _resolve_source(model: EffectiveSettings, references: References) -> dict[str, Any]:
    """Return the source, its weights and the artifact; check the exporter if there is none."""
    settings = model.settings
    fields: dict[str, Any] = {}
    if model.has_valid("source"):
        fields["source"] = references.check_source(model, ("source",), settings.source)
    fields |= resolve_weights(model, references)
    if not has_artifact(model):
        check_exporter(model)
        check_sequences(model)
        check_saved_source(model)
    elif model.has_valid("artifact"):
        fields["artifact"] = resolve_artifact(model, references)
    return fields


def _resolve_signature(model: EffectiveSettings, context: ResolveContext) -> dict[str, Any]:
    """Return inputs, outputs, axes and cases, or {} if one of them is invalid."""
    settings = model.settings
    fills: list[Fill] = []
    call_paths: tuple[str, ...] = ()
    if model.has_valid("inputs"):
        fills = [
            _resolve_fill(model, context, ("inputs", index), table)
            for index, table in enumerate(settings.inputs)
        ]
        call_paths = resolve_call_paths(model)
        check_inputs(model)
    tolerances = []
    if model.has_valid("outputs"):
        tolerances = [
            resolve_tolerance(
                model, ("outputs", index, "tolerance"), table.tolerance, context.devices
            )
            if table.tolerance
            else None
            for index, table in enumerate(settings.outputs)
        ]
    if not model.has_valid("inputs", "outputs"):
        return {}
    shapes = resolve_shapes(model)
    check_masks(model, {shape.path: shape for shape in shapes})
    comparators = resolve_comparators(
        model, {shape.path: shape for shape in shapes}, context.references
    )
    axes = resolve_axes(model, shapes)
    cases = resolve_cases(model, axes, context.references) if model.has_valid("cases") else ()
    if model.report:
        return {}
    dims = {shape.path: shape.dims for shape in shapes}
    return {
        "inputs": tuple(
            Input(
                name=table.name,
                shape=dims["inputs", index],
                dtype=resolve_dtype(settings, table),
                at=call_paths[index],
                fill=fills[index],
                scalar=table.scalar,
                optional=table.optional,
            )
            for index, table in enumerate(settings.inputs)
        ),
        "outputs": tuple(
            Output(
                name=table.name,
                shape=dims["outputs", index],
                dtype=resolve_dtype(settings, table),
                kind=table.kind,
                tolerance=tolerances[index],
                compare=comparators[index],
                masked_by=table.masked_by or "",
            )
            for index, table in enumerate(settings.outputs)
        ),
        "axes": axes,
        "cases": cases,
    }


def _resolve_fill(
    model: EffectiveSettings, context: ResolveContext, path: KeyPath, table: InputTable
) -> Fill:
    """Return the fill of an input; without one, a function of `inputs_from` draws the values."""
    has_function = model.settings.inputs_from or not model.has_valid("inputs_from")
    if has_function and "fill" not in table.model_fields_set:
        return Fill(kind="function")
    dtype = resolve_dtype(model.settings, table)
    return resolve_fill(model, (*path, "fill"), table.fill, dtype, context.references)


def _check_required_keys(model: EffectiveSettings) -> None:
    for key in Settings.required:
        if (key,) not in model.origins and key not in model.broken:
            choice = _OTHER_PLACES.get(key, "")
            message = f"needs the key '{key}'{choice}; add `{key} = {_EXAMPLES[key]}`"
            model.report.add(model.entry.file.build_problem(model.entry.path, message))


def _check_devices(model: EffectiveSettings, devices: Collection[str]) -> None:
    """Report unknown devices, except those of `[tool.exporter]`, which are already checked."""
    if not model.has_valid("devices") or model.find_layer(("devices",)).path[0] == "tool":
        return
    names = model.settings.devices
    for index, name in enumerate(names):
        if name not in devices:
            model.add_problem(("devices", index), format_unknown_device(name, devices))
        elif name in names[:index]:
            model.add_problem(("devices", index), f"{quote(name)} is listed twice")
