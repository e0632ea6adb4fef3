"""The effective settings of a model in, its `ModelSpec` out; every problem is reported.

Each rule speaks where it has what it needs: a broken list of inputs costs no word about opsets.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.axes import resolve_axes
from exporter.manifest.rules.call_placement import resolve_call_paths, resolve_containers
from exporter.manifest.rules.cases import resolve_cases, resolve_inputs_from
from exporter.manifest.rules.custom_ops import resolve_custom_ops
from exporter.manifest.rules.devices import format_unknown_device
from exporter.manifest.rules.expectations import resolve_expectations, resolve_skips
from exporter.manifest.rules.exporters import check_exporter, check_sequences, resolve_options
from exporter.manifest.rules.fills import resolve_fill
from exporter.manifest.rules.optional_inputs import check_inputs
from exporter.manifest.rules.overrides import resolve_overrides
from exporter.manifest.rules.parameters import resolve_parameters
from exporter.manifest.rules.references import References
from exporter.manifest.rules.signature import resolve_dtype, resolve_shapes
from exporter.manifest.rules.sources import check_saved_source, resolve_weights
from exporter.manifest.rules.tolerances import resolve_tolerance
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.tables import InputTable
from exporter.manifest.spec.call import Constant, Fill, Input
from exporter.manifest.spec.model import ModelSpec, Output
from exporter.manifest.syntax.message_format import KeyPath, quote

#: Where a key that every model needs can stand as well.
_ELSEWHERE = {"opsets": ", here, in [defaults] or in [tool.exporter]"}
#: Keys that pass as they are.
_PLAIN = (
    "description", "owner", "tags", "init", "seed", "mode", "precision", "export_device",
    "exporter", "capture", "opsets", "devices", "ir_version", "timeout", "memory", "thorough",
    "latency",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveContext:
    """What models refer to."""

    devices: Collection[str]
    """Every device of the project, by name."""
    references: References


def resolve_model(model: EffectiveSettings, around: ResolveContext) -> ModelSpec | None:
    """The model, or None once anything is reported, of this model or of another."""
    _check_required(model)
    _check_devices(model, around.devices)
    check_exporter(model)
    check_sequences(model)
    settings = model.settings
    parts: dict[str, Any] = {key: getattr(settings, key) for key in _PLAIN}
    if model.has("source"):
        parts["source"] = around.references.source(model, ("source",), settings.source)
    parts |= resolve_weights(model, around.references)
    check_saved_source(model)
    if model.has("options"):
        parts["options"] = resolve_options(model)
    if model.has("custom_ops"):
        parts["custom_ops"] = resolve_custom_ops(model, around.references)
    if model.has("expect"):
        parts["expect"] = resolve_expectations(model)
    if model.has("skip"):
        parts["skip"] = resolve_skips(model)
    if model.has("overrides"):
        parts["overrides"] = resolve_overrides(model, around.devices)
    if model.has("parameters"):
        parts["parameters"] = resolve_parameters(model)
    if model.has("tolerance"):
        parts["tolerance"] = resolve_tolerance(
            model, ("tolerance",), settings.tolerance, around.devices
        )
    parts |= _call(model, around.references)
    parts |= _signature(model, around)
    if model.report:
        return None
    return ModelSpec(
        id=model.id,
        manifest=model.own.file.name,
        line=model.own.file.lines[model.own.path],
        constants=tuple(Constant(at=each.at, value=each.value) for each in settings.constants),
        **parts,
    )


def _call(model: EffectiveSettings, references: References) -> dict[str, Any]:
    """What the call has besides inputs and constants, as far as it is sound."""
    found: dict[str, Any] = {}
    if model.has("containers"):
        found["containers"] = resolve_containers(model, references)
    if model.has("inputs_from"):
        function = model.settings.inputs_from
        found["inputs_from"] = resolve_inputs_from(model, ("inputs_from",), function, references)
    return found


def _signature(model: EffectiveSettings, around: ResolveContext) -> dict[str, Any]:
    """Inputs, outputs, axes and cases, as far as what they need is sound."""
    settings = model.settings
    fills = [
        _fill(model, around, ("inputs", index), table)
        for index, table in enumerate(settings.inputs)
        if model.has("inputs")
    ]
    places = resolve_call_paths(model) if model.has("inputs") else ()
    if model.has("inputs"):
        check_inputs(model)
    tolerances = [
        resolve_tolerance(model, ("outputs", index, "tolerance"), table.tolerance, around.devices)
        if table.tolerance
        else None
        for index, table in enumerate(settings.outputs)
        if model.has("outputs")
    ]
    if not model.has("inputs", "outputs"):
        return {}
    shapes = resolve_shapes(model)
    axes = resolve_axes(model, shapes)
    cases = resolve_cases(model, axes, around.references) if model.has("cases") else ()
    if model.report:
        return {}
    dims = {shape.place: shape.dims for shape in shapes}
    return {
        "inputs": tuple(
            Input(
                name=table.name,
                shape=dims["inputs", index],
                dtype=resolve_dtype(settings, table),
                at=places[index],
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
            )
            for index, table in enumerate(settings.outputs)
        ),
        "axes": axes,
        "cases": cases,
    }


def _fill(
    model: EffectiveSettings, around: ResolveContext, place: KeyPath, table: InputTable
) -> Fill:
    fill = resolve_fill(model, place, table.fill, resolve_dtype(model.settings, table))
    if fill.kind == "file":
        path = (*place, "fill", "file")
        return fill.model_copy(update={"file": around.references.data_file(model, path, fill.file)})
    if fill.kind != "python":
        return fill
    path = (*place, "fill", "python")
    return fill.model_copy(update={"python": around.references.function(model, path, fill.python)})


def _check_required(model: EffectiveSettings) -> None:
    for key in Settings.required:
        if (key,) not in model.origins and key not in model.broken:
            own = model.own
            message = f"needs the key '{key}'{_ELSEWHERE.get(key, '')}"
            model.report.add(own.file.problem(own.path, message))


def _check_devices(model: EffectiveSettings, known: Collection[str]) -> None:
    """Devices that `[tool.exporter]` names are checked there."""
    if not model.has("devices") or model.origin(("devices",)).path[0] == "tool":
        return
    devices = model.settings.devices
    for index, name in enumerate(devices):
        if name not in known:
            model.add_problem(("devices", index), format_unknown_device(name, known))
        elif name in devices[:index]:
            model.add_problem(("devices", index), f"{quote(name)} is named twice")
