"""Invalid entries: their specs, so that each cell is red, and parents that they cannot extend."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from exporter.core.device_name import DeviceName
from exporter.core.errors import Location, Problem
from exporter.manifest.resolved.model import ModelSpec
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.validation import ManifestFile
from exporter.manifest.syntax.toml_file import ProblemCollector

#: The opset of the only cell if the opsets of the entry are unknown: the first one of dynamo.
_DEFAULT_OPSET = 18
_DEFAULT_DEVICE = DeviceName("cpu")


def make_invalid_spec(entry: EffectiveSettings) -> ModelSpec:
    settings, problems = entry.settings, ProblemCollector()
    for problem in (*chain.from_iterable(entry.broken.values()), *entry.report):
        problems.add(problem)
    own_devices = settings.devices if entry.has_valid("devices") else ()
    known_devices = [name for name in dict.fromkeys(own_devices) if name in entry.project.devices]
    # Reports show them, and the commands select by them.
    keys = ("description", "owner", "tags")
    shown = {key: getattr(settings, key) for key in keys if entry.has_valid(key)}
    return make_empty_spec(
        entry.id,
        Location(
            file=entry.own_layer.file.name, line=entry.own_layer.file.lines[entry.own_layer.path]
        ),
        problems.list_problems(),
    ).model_copy(
        update={
            **shown,
            "opsets": settings.opsets or (_DEFAULT_OPSET,),
            "devices": tuple(map(DeviceName, known_devices)) or (_DEFAULT_DEVICE,),
        }
    )


def make_empty_spec(id: str, location: Location, problems: Iterable[Problem]) -> ModelSpec:
    """Return a spec with one cell for an entry without readable settings."""
    return ModelSpec(
        id=id,
        manifest=location.file,
        line=location.line or 1,
        source="",
        opsets=(_DEFAULT_OPSET,),
        devices=(_DEFAULT_DEVICE,),
        inputs=(),
        outputs=(),
        timeout=600.0,
        problems=tuple(str(problem) for problem in problems),
    )


def list_unreadable(file: ManifestFile) -> list[ModelSpec]:
    """Return a spec for each entry of a file that is no table."""
    return [
        make_empty_spec(id, Location(file=file.file.name, line=file.file.lines["models", id]), each)
        for id, each in file.unreadable.items()
    ]
