"""Load a project: read all files, resolve all models, and report all problems at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError, Location, Problem
from exporter.manifest.project_settings import check_gate, read_project
from exporter.manifest.reading.inheritance import InheritanceGraph, InheritedEntry
from exporter.manifest.reading.layers import EffectiveSettings, merge_layers
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.toml_file import read_toml
from exporter.manifest.reading.validation import ManifestFile, validate_manifest
from exporter.manifest.rules.axes import check_shared_axes
from exporter.manifest.rules.model_resolver import ResolveContext, resolve_model
from exporter.manifest.rules.references import References
from exporter.manifest.rules.repeats import expand_repeats
from exporter.manifest.schema.entry import ID_PATTERN
from exporter.manifest.spec.model import Manifest
from exporter.manifest.syntax.message_format import quote

_ID_RULE = "expected an ID of up to 100 of a-z, 0-9, '_', '.' and '-' that begins with a-z or 0-9"
#: Names in the build folder that are not folders of models.
_RESERVED_IDS = frozenset(
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


def load_project(root: Path, fallback_root: Path | None = None) -> Manifest:
    """Return the manifest of a project; see `load_layers`."""
    return load_layers(root, fallback_root).manifest


def load_layers(root: Path, fallback_root: Path | None = None) -> LoadedProject:
    """Read `[tool.exporter]` of pyproject.toml and every manifest of the project.

    Args:
        root: The project's root; paths in messages are relative to it.
        fallback_root: A second folder for the files of entries that `root` lacks.

    Raises:
        ExporterError: MANIFEST, with every problem of every file.
    """
    root = root.absolute()
    report = ProblemCollector()
    settings = read_project(root, report)
    graph = InheritanceGraph(report)
    files = tuple(_read_manifests(root, settings.project.manifests, report))
    for file in files:
        graph.add(file)
    _check_ids(graph, report)
    check_gate(settings, {entry.id for entry in graph.entries}, report)
    base = (settings.layer,) if settings.layer else ()
    models = [
        expand_repeats(merge_layers(entry.id, (*base, *graph.list_layers(entry)), report))
        for entry in graph.entries
    ]
    devices = frozenset(device.name for device in settings.project.devices)
    references = References(root, fallback_root)
    context = ResolveContext(
        devices=devices,
        references=references,
        environment=settings.project.environment,
    )
    specs = [resolve_model(model, context) for model in models]
    for file in files:
        check_shared_axes(file.defaults, models)
    if files and not graph.entries and not report:
        folder = Location(file=settings.project.manifests)
        report.add(Problem(message="no manifest has a [models.ID]; add one", location=folder))
    if report:
        raise ExporterError(ExitCode.MANIFEST, report.list_problems())
    resolved = tuple(spec for spec in specs if spec is not None)
    return LoadedProject(
        manifest=Manifest(project=settings.project, models=resolved),
        layers={model.id: model for model in models},
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


def _check_ids(graph: InheritanceGraph, report: ProblemCollector) -> None:
    """Report IDs that are malformed, reserved, or equal to another one if case is ignored."""
    owners: dict[str, InheritedEntry] = {}
    for entry in graph.entries:
        file, path = entry.entry.file, entry.entry.path
        if not re.fullmatch(ID_PATTERN, entry.id):
            fixed = re.sub(r"[^a-z0-9_.-]+", "-", entry.id.casefold()).strip("-_.")
            hint = f"; did you mean '{fixed}'?" if re.fullmatch(ID_PATTERN, fixed) else ""
            report.add(file.build_problem(path, f"{_ID_RULE}{hint}"))
        if entry.id in _RESERVED_IDS:
            message = f"the ID {quote(entry.id)} is reserved in the build folder; use another one"
            report.add(file.build_problem(path, message))
        owner = owners.setdefault(entry.id.casefold(), entry)
        if owner is not entry:
            location = f"{owner.entry.file.name}:{owner.entry.file.lines[owner.entry.path]}"
            message = f"the ID {quote(owner.id)} already exists at {location}; use another one"
            report.add(file.build_problem(path, message))
