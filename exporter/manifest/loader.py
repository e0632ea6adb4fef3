"""Load a project: read all files, resolve all models, and report all problems at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError, Location, Problem
from exporter.manifest.invalid_entries import (
    list_entry_problems,
    make_empty_spec,
    make_invalid_spec,
)
from exporter.manifest.project_settings import check_gate, read_project
from exporter.manifest.reading.inheritance import InheritanceGraph, InheritedEntry
from exporter.manifest.reading.layers import EffectiveSettings, merge_layers
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.toml_file import read_toml
from exporter.manifest.reading.validation import ManifestFile, validate_manifest
from exporter.manifest.resolved.device import Device
from exporter.manifest.resolved.model import ModelSpec
from exporter.manifest.resolved.project import Manifest, Project
from exporter.manifest.rules.axes import check_shared_axes
from exporter.manifest.rules.call_placement import complete_input_names
from exporter.manifest.rules.devices import list_pinned_devices
from exporter.manifest.rules.model_resolver import ResolveContext, resolve_model
from exporter.manifest.rules.references import References
from exporter.manifest.rules.repeats import expand_repeats
from exporter.manifest.schema.entry import ID_PATTERN
from exporter.manifest.syntax.message_format import quote

_ID_RULE = "expected an ID of up to 100 of a-z, 0-9, '_', '.' and '-' that begins with a-z or 0-9"
#: Names in the build folder that are not folders of models.
RESERVED_IDS = frozenset(
    {"results.json", "stamps.json", "reports.json", "untouched.json", "shard.json"}
    | {"gate.md", "comment.md", "repro"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProject:
    """A project with the origins of its settings."""

    manifest: Manifest
    layers: Mapping[str, EffectiveSettings]
    """The settings of each model with their origins, by ID."""
    files: frozenset[Path]
    """Every file that an entry names."""


def load_project(
    root: Path, fallback_root: Path | None = None, *, keep_invalid: bool = False
) -> Manifest:
    """Return the manifest of a project; see `load_layers`."""
    return load_layers(root, fallback_root, keep_invalid=keep_invalid).manifest


def load_devices(root: Path) -> dict[str, Device]:
    """Return the devices of a project, or the built-in ones if there is no project.

    Raises:
        ExporterError: MANIFEST, with every problem of `[tool.exporter]`.
    """
    return {device.name: device for device in load_settings(root).devices}


def load_settings(root: Path) -> Project:
    """Return the settings of a project without its manifests.

    Raises:
        ExporterError: MANIFEST, with every problem of `[tool.exporter]`.
    """
    report = ProblemCollector()
    project = read_project(root.absolute(), report).project
    if report:
        raise ExporterError(ExitCode.MANIFEST, report.list_problems())
    return project


def load_layers(
    root: Path, fallback_root: Path | None = None, *, keep_invalid: bool = False
) -> LoadedProject:
    """Read `[tool.exporter]` of pyproject.toml and every manifest of the project.

    Args:
        root: The project's root; paths in messages are relative to it.
        fallback_root: A second folder for the files of entries that `root` lacks.
        keep_invalid: Return an invalid entry as a model with `problems`, and the problems of files
            in `Manifest.problems`, instead of an error.

    Raises:
        ExporterError: MANIFEST, with every problem of every file. If `keep_invalid` is set: only if
            `[tool.exporter]` has a problem, or if no file has a readable entry.
    """
    root = root.absolute()
    report, settings_report = ProblemCollector(), ProblemCollector()
    settings = read_project(root, settings_report)
    graph = InheritanceGraph()
    files = tuple(_read_manifests(root, settings.project.manifests, report))
    for file in files:
        graph.add(file)
    invalid_ids = _find_invalid_ids(graph)
    check_gate(settings, {entry.id for entry in graph.entries}, settings_report)
    base = (settings.layer,) if settings.layer else ()
    references = References(root, fallback_root)
    models = []
    for entry in graph.entries:
        entry_report = ProblemCollector()
        layers = (*base, *graph.list_layers(entry, entry_report))
        expanded = expand_repeats(merge_layers(entry.id, layers, entry_report))
        models.append(complete_input_names(expanded, references))
    devices = settings.project.device_names
    context = ResolveContext(
        devices=devices,
        pinned=list_pinned_devices(settings.project.devices),
        references=references,
        environment=settings.project.environment,
    )
    for file in files:
        check_shared_axes(file.defaults, models)
    specs = [resolve_model(model, context) for model in models]
    for model in models:
        report.include(model.report)
    for problems in invalid_ids.values():
        for problem in problems:
            report.add(problem)
    if files and not graph.entries and not report and not settings_report:
        folder = Location(file=settings.project.manifests)
        report.add(Problem(message="no manifest has a [models.ID]; add one", location=folder))
    complete = [
        spec or make_invalid_spec(model, list_entry_problems(model), devices)
        for model, spec in zip(models, specs, strict=True)
    ]
    resolved = _keep_valid_ids(files, complete, invalid_ids)
    if settings_report or (report and not (keep_invalid and resolved)):
        settings_report.include(report)
        raise ExporterError(ExitCode.MANIFEST, settings_report.list_problems())
    attributed = {text for spec in resolved for text in spec.problems}
    other_problems = ProblemCollector()
    for problem in report:
        if str(problem) not in attributed:
            other_problems.add(problem)
    return LoadedProject(
        manifest=Manifest(
            project=settings.project,
            models=resolved,
            problems=other_problems.list_problems(),
        ),
        layers={model.id: model for model in reversed(models)},
        files=frozenset(references.files),
    )


def _read_manifests(root: Path, folder: str, report: ProblemCollector) -> Iterator[ManifestFile]:
    """Yield every manifest below the folder, sorted by path, without hidden files and folders."""
    base = root / folder
    paths = sorted(
        path
        for path in base.rglob("*.toml")
        if not any(part.startswith(".") for part in path.relative_to(base).parts)
    )
    if not paths:
        problem = "contains no manifest (*.toml)" if base.is_dir() else "the folder does not exist"
        message = (
            f"{problem}; run the command in the project's folder, pass it with --root, or set "
        )
        message += "`manifests` in [tool.exporter] of its pyproject.toml"
        report.add(Problem(message=message, location=Location(file=folder)))
    for path in paths:
        name = path.relative_to(root).as_posix()
        if not name.isprintable():  # such a name can be neither printed nor stored
            message = f"contains a file with an unprintable name, {quote(name)}; rename it"
            report.add(Problem(message=message, location=Location(file=folder)))
            continue
        file = read_toml(path, name)
        if isinstance(file, Problem):
            report.add(file)
        else:
            yield validate_manifest(file, report)


def _keep_valid_ids(
    files: Iterable[ManifestFile],
    specs: Iterable[ModelSpec],
    invalid_ids: Mapping[str, tuple[Problem, ...]],
) -> tuple[ModelSpec, ...]:
    """Return one spec for each ID that can name a folder, with the problems of the ID."""
    unreadable = [
        make_empty_spec(id, Location(file=file.file.name, line=file.file.lines["models", id]), each)
        for file in files
        for id, each in file.unreadable.items()
    ]
    by_id: dict[str, ModelSpec] = {}
    for spec in (*specs, *unreadable):
        if not re.fullmatch(ID_PATTERN, spec.id) or spec.id in RESERVED_IDS:
            continue
        texts = [str(problem) for problem in invalid_ids.get(spec.id, ())]
        earlier = by_id.get(spec.id)
        texts += earlier.problems if earlier else ()
        problems = tuple(dict.fromkeys((*texts, *spec.problems)))
        by_id[spec.id] = (earlier or spec).model_copy(update={"problems": problems})
    return tuple(by_id.values())


def _find_invalid_ids(graph: InheritanceGraph) -> dict[str, tuple[Problem, ...]]:
    """Return problems by ID: malformed, reserved, or equal to another one if case is ignored."""
    owners: dict[str, InheritedEntry] = {}
    problems_by_id: dict[str, tuple[Problem, ...]] = {}

    def add(entry: InheritedEntry, message: str) -> None:
        problem = entry.entry.file.build_problem(entry.entry.path, message)
        problems_by_id[entry.id] = (*problems_by_id.get(entry.id, ()), problem)

    for entry in graph.entries:
        if not re.fullmatch(ID_PATTERN, entry.id):
            fixed = re.sub(r"[^a-z0-9_.-]+", "-", entry.id.casefold()).strip("-_.")
            hint = f"; did you mean '{fixed}'?" if re.fullmatch(ID_PATTERN, fixed) else ""
            add(entry, f"{_ID_RULE}{hint}")
        if entry.id in RESERVED_IDS:
            message = f"the ID {quote(entry.id)} is reserved in the build folder; use another one"
            add(entry, message)
        owner = owners.setdefault(entry.id.casefold(), entry)
        if owner is not entry:
            location = f"{owner.entry.file.name}:{owner.entry.file.lines[owner.entry.path]}"
            message = f"the ID {quote(owner.id)} already exists at {location}; use another one"
            add(entry, message)
    return problems_by_id
