"""`overrides` in, with their conditions turned into the opsets of the model, out.

What can be set for a cell is what a file of one opset, or the comparison on one device, has for
itself; `override_table.py` says for every other key where it belongs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.rules.expectations import resolve_condition
from exporter.manifest.rules.tolerances import resolve_tolerance
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.overrides import OverrideTable
from exporter.manifest.schema.tables import list_explicit_values
from exporter.manifest.spec.model import Override, Tolerance
from exporter.manifest.syntax.message_format import KeyPath, join_words, quote

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


def resolve_overrides(model: EffectiveSettings, devices: Collection[str]) -> tuple[Override, ...]:
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
                opsets=resolve_condition(model, place, table),
                device=table.device,
                exporter=table.exporter,
                capture=table.capture,
                ir_version=table.ir_version,
                options=list_explicit_values(table.options),
                tolerance=resolve_tolerance(model, (*place, "tolerance"), table.tolerance, devices)
                if table.tolerance
                else None,
                outputs=dict(_outputs(model, place, table, devices)),
            )
        )
    return tuple(found)


def split_variants(settings: Settings) -> tuple[Variant, ...]:
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
    keys = list_explicit_values(table)
    if not any(key in keys for key in _CONDITIONS):
        message = "needs `opset` or `device`; what holds for all cells stands in the entry"
        model.add_problem(place, message)
    if all(key in _CONDITIONS for key in keys):
        known = join_words((f"`{key}`" for key in (*table.of_file, "tolerance", "outputs")), "or")
        model.add_problem(place, f"changes nothing; needs {known}")
    for key in table.of_file:
        if key in keys and table.device != "*":
            message = "one file of an opset serves all devices; only tolerances depend on `device`"
            model.add_problem((*place, key), message)


def _outputs(
    model: EffectiveSettings, place: KeyPath, table: OverrideTable, devices: Collection[str]
) -> Iterator[tuple[str, Tolerance]]:
    known = [output.name for output in model.settings.outputs]
    for index, output in enumerate(table.outputs):
        path = (*place, "outputs", index)
        if output.name not in known and model.has("outputs"):
            hint = suggest_nearest(output.name, known)
            model.add_problem((*path, "name"), f"no output has the name {quote(output.name)}{hint}")
        where = (*path, "tolerance")
        yield output.name, resolve_tolerance(model, where, output.tolerance, devices)
