"""Invalid entries: their specs, so that each cell is red, and parents that they cannot extend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from exporter.core.device_name import DeviceName
from exporter.core.errors import Location, Problem, suggest_name
from exporter.manifest.loader import MAX_ENTRIES, InheritedEntry
from exporter.manifest.resolved.model import ModelSpec
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.validation import ManifestFile
from exporter.manifest.syntax.toml_file import ProblemCollector
from exporter.manifest.syntax.values import quote

#: The opset of the only cell if the opsets of the entry are unknown: the first one of dynamo.
_DEFAULT_OPSET = 18
_DEFAULT_DEVICE = DeviceName("cpu")


def make_invalid_spec(model: EffectiveSettings) -> ModelSpec:
    settings, problems = model.settings, ProblemCollector()
    for problem in (*chain.from_iterable(model.broken.values()), *model.report):
        problems.add(problem)
    own_devices = settings.devices if model.has_valid("devices") else ()
    known_devices = [name for name in dict.fromkeys(own_devices) if name in model.context.devices]
    # Reports show them, and the commands select by them.
    keys = ("description", "owner", "tags")
    shown = {key: getattr(settings, key) for key in keys if model.has_valid(key)}
    return make_empty_spec(
        model.id,
        Location(file=model.entry.file.name, line=model.entry.file.lines[model.entry.path]),
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


def report_parent(
    entry: InheritedEntry,
    entries: Mapping[str, InheritedEntry],
    unreadable: Mapping[str, tuple[Problem, ...]],
    cycle: tuple[str, ...],
    last: str,
    report: ProblemCollector,
) -> None:
    """Report why an entry cannot extend its parent.

    `cycle`: The entries that extend each other, if they do.
    `last`: The end of the chain of entries.
    """
    name = entry.parent
    if cycle:
        first = cycle.index(min(cycle))  # each entry of the cycle reports the same problem
        text = " -> ".join((*cycle[first:], *cycle[: first + 1]))
        message = f"is a cycle: {text}; remove one `extends`"
        report.add(_build_problem(entries[cycle[first]], message))
    elif name in entries:
        message = f"is in a chain of more than {MAX_ENTRIES}; extend an earlier entry"
        report.add(_build_problem(entries[last], message))
    elif name in unreadable:
        for problem in unreadable[name]:
            report.add(problem)
    else:
        hint = suggest_name(name, entries)
        report.add(_build_problem(entry, f"no model has the ID {quote(name)}{hint}"))


def _build_problem(entry: InheritedEntry, message: str) -> Problem:
    return entry.entry.file.build_problem((*entry.entry.path, "extends"), message)
