"""`overrides` in, with their conditions turned into the opsets of the model, out.

What can be set for a cell is what a file of one opset, or the comparison on one device, has for
itself; `override_table.py` says for every other key where it belongs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from exporter.core.errors import nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.expectations import opsets_of
from exporter.manifest.rules.tolerances import resolved_tolerance
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.overrides import OverrideTable
from exporter.manifest.schema.tables import explicit_values
from exporter.manifest.spec.model import Override, Tolerance
from exporter.manifest.syntax.message_format import KeyPath, listed, quoted

_CONDITIONS = ("opset", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Opsets that are made alike."""

    settings: Settings
    """As they are for these opsets; `opsets` holds these alone."""
    override: int | None
    """The override that says `exporter` or `capture`; None where the entry does."""

    def place(self, key: str) -> KeyPath | None:
        """Where the override says `key`; None where none does."""
        return None if self.override is None else ("overrides", self.override, key)


def resolved_overrides(model: EffectiveSettings, devices: Collection[str]) -> tuple[Override, ...]:
    """The overrides, in order.

    Args:
        model: Whose they are.
        devices: Every device of the project.
    """
    found = []
    for index, table in enumerate(model.settings.overrides):
        place: KeyPath = ("overrides", index)
        _check_keys(model, place, table)
        found.append(
            Override(
                opsets=opsets_of(model, place, table),
                device=table.device,
                exporter=table.exporter,
                capture=table.capture,
                ir_version=table.ir_version,
                options=explicit_values(table.options),
                tolerance=resolved_tolerance(model, (*place, "tolerance"), table.tolerance, devices)
                if table.tolerance
                else None,
                outputs=dict(_outputs(model, place, table, devices)),
            )
        )
    return tuple(found)


def variants(settings: Settings) -> tuple[Variant, ...]:
    """The opsets of a model by what its overrides say of exporter and capture."""
    alike: dict[tuple[object, object, int | None], list[int]] = {}
    for opset in settings.opsets:
        exporter, capture, origin = settings.exporter, settings.capture, None
        for index, table in enumerate(settings.overrides):
            if table.opset is not None and opset not in table.opset:
                continue
            if table.exporter is not None:
                # Captures belong to one exporter.
                exporter, capture, origin = table.exporter, None, index
            if table.capture is not None:
                capture, origin = table.capture, index
        alike.setdefault((exporter, capture, origin), []).append(opset)
    return tuple(
        Variant(
            settings=settings.model_copy(
                update={"exporter": exporter, "capture": capture, "opsets": tuple(opsets)}
            ),
            override=origin,
        )
        for (exporter, capture, origin), opsets in alike.items()
    )


def _check_keys(model: EffectiveSettings, place: KeyPath, table: OverrideTable) -> None:
    keys = explicit_values(table)
    if not any(key in keys for key in _CONDITIONS):
        message = "needs `opset` or `device`; what holds for all cells stands in the entry"
        model.refuse(place, message)
    if all(key in _CONDITIONS for key in keys):
        known = listed((f"`{key}`" for key in (*table.of_file, "tolerance", "outputs")), "or")
        model.refuse(place, f"changes nothing; needs {known}")
    for key in table.of_file:
        if key in keys and table.device != "*":
            message = "one file of an opset serves all devices; only tolerances depend on `device`"
            model.refuse((*place, key), message)


def _outputs(
    model: EffectiveSettings, place: KeyPath, table: OverrideTable, devices: Collection[str]
) -> Iterator[tuple[str, Tolerance]]:
    known = [output.name for output in model.settings.outputs]
    for index, output in enumerate(table.outputs):
        path = (*place, "outputs", index)
        if output.name not in known and model.has("outputs"):
            hint = nearest(output.name, known)
            model.refuse((*path, "name"), f"no output has the name {quoted(output.name)}{hint}")
        where = (*path, "tolerance")
        yield output.name, resolved_tolerance(model, where, output.tolerance, devices)
