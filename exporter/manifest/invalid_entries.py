"""Represent an entry with problems as a model with red cells.

The cells of an invalid entry are errors, and all other entries keep their results. Its opsets and
devices are those of the entry as far as they are valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from exporter.core.errors import Location, Problem
from exporter.manifest.reading.layers import EffectiveSettings
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.resolved.model import ModelSpec

#: The opset of the only cell if the opsets of the entry are unknown: the first one of dynamo.
_DEFAULT_OPSET = 18
_DEFAULT_DEVICE = "cpu"
#: Keys that reports show, and that the commands select by.
_SHOWN_KEYS = ("description", "owner", "tags")


def list_entry_problems(model: EffectiveSettings) -> tuple[Problem, ...]:
    """Return the problems of an entry and of the keys that it inherits, by file and line."""
    problems = ProblemCollector()
    for problem in (*chain.from_iterable(model.broken.values()), *model.report):
        problems.add(problem)
    return problems.list_problems()


def make_invalid_spec(
    model: EffectiveSettings, problems: Iterable[Problem], devices: Collection[str]
) -> ModelSpec:
    """Return a spec with the problems of an entry.

    Args:
        model: The settings of the entry.
        problems: Its problems, which need not be in its own table.
        devices: Every device of the project.
    """
    settings = model.settings
    own_devices = settings.devices if model.has_valid("devices") else ()
    known_devices = [name for name in dict.fromkeys(own_devices) if name in devices]
    shown = {key: getattr(settings, key) for key in _SHOWN_KEYS if model.has_valid(key)}
    return make_empty_spec(
        model.id,
        Location(file=model.entry.file.name, line=model.entry.file.lines[model.entry.path]),
        problems,
    ).model_copy(
        update={
            **shown,
            "opsets": settings.opsets or (_DEFAULT_OPSET,),
            "devices": tuple(known_devices) or (_DEFAULT_DEVICE,),
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
