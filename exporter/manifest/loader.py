"""The project's root in, the whole `Manifest` out, or every problem of every file at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.core.errors import (
    ExitCode,
    ExporterError,
    Location,
    Problem,
)
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

_ID_RULE = "an ID has up to 100 of a-z, 0-9, '_', '.' and '-', and begins with a letter or digit"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedProject:
    """A project as it was read."""

    manifest: Manifest
    layers: Mapping[str, EffectiveSettings]
    """The settings of each model with where they come from, by ID."""
    files: frozenset[Path]
    """Every file that entries name."""


def load_project(root: Path, beside: Path | None = None) -> Manifest:
    """The manifest of a project; see `load_layers`."""
    return load_layers(root, beside).manifest


def load_layers(root: Path, beside: Path | None = None) -> LoadedProject:
    """Reads `[tool.exporter]` of pyproject.toml and every manifest of the project.

    Args:
        root: The project's root; paths in messages are relative to it.
        beside: Where the files may lie as well that entries name, where `root` lacks them.

    Raises:
        ExporterError: MANIFEST, with every problem of every file.
    """
    root = root.absolute()
    report = ProblemCollector()
    project = read_project(root, report)
    family = InheritanceGraph(report)
    files = tuple(_manifest_files(root, project.project.manifests, report))
    for file in files:
        family.add(file)
    _check_ids(family, report)
    check_gate(project, {member.id for member in family.members}, report)
    base = (project.layer,) if project.layer else ()
    models = [
        expand_repeats(merge_layers(member.id, (*base, *family.layers(member)), report))
        for member in family.members
    ]
    devices = frozenset(device.name for device in project.project.devices)
    references = References(root, beside)
    around = ResolveContext(devices=devices, references=references)
    specs = [resolve_model(model, around) for model in models]
    for file in files:
        check_shared_axes(file.defaults, models)
    if files and not family.members and not report:
        folder = Location(file=project.project.manifests)
        report.add(Problem(message="no manifest has a [models.ID]", location=folder))
    if report:
        raise ExporterError(ExitCode.MANIFEST, report.problems())
    found = tuple(spec for spec in specs if spec is not None)
    return LoadedProject(
        manifest=Manifest(project=project.project, models=found),
        layers={model.id: model for model in models},
        files=frozenset(references.found),
    )


#: What lies beside the folders of the models in the build folder.
_RESERVED = frozenset(
    {"results.json", "stamps.json", "reports.json", "untouched.json", "shard.json"}
    | {"gate.md", "comment.md", "repro"}
)


def _manifest_files(root: Path, folder: str, report: ProblemCollector) -> Iterator[ManifestFile]:
    """Every manifest below the folder, sorted by path; hidden files and folders are left out."""
    place = root / folder
    paths = sorted(path for path in place.rglob("*.toml") if not _is_hidden(path, place))
    if not paths:
        what = "holds no manifest (*.toml)" if place.is_dir() else "there is no such folder"
        message = f"{what}; start in the project's folder, give it with --root, or let `manifests` "
        message += "in [tool.exporter] of its pyproject.toml name the folder of the manifests"
        report.add(Problem(message=message, location=Location(file=folder)))
    for path in paths:
        name = path.relative_to(root).as_posix()
        if not name.isprintable():  # it could be neither printed nor stored
            message = f"holds a file whose name cannot be printed, {quote(name)}"
            report.add(Problem(message=message, location=Location(file=folder)))
            continue
        file = read_toml(path, name)
        if isinstance(file, Problem):
            report.add(file)
        else:
            yield validate_manifest(file, report)


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _check_ids(family: InheritanceGraph, report: ProblemCollector) -> None:
    """Every ID is well-formed, and unique over all files and ways of writing it."""
    owners: dict[str, InheritedEntry] = {}
    for member in family.members:
        entry = member.entry
        if not re.fullmatch(ID_PATTERN, member.id):
            fixed = re.sub(r"[^a-z0-9_.-]+", "-", member.id.casefold()).strip("-_.")
            hint = f"; did you mean '{fixed}'?" if re.fullmatch(ID_PATTERN, fixed) else ""
            report.add(entry.file.problem(entry.path, f"{_ID_RULE}{hint}"))
        if member.id in _RESERVED:
            message = f"the ID {quote(member.id)} names something else in the build folder"
            report.add(entry.file.problem(entry.path, message))
        owner = owners.setdefault(member.id.casefold(), member)
        if owner is not member:
            place = f"{owner.entry.file.name}:{owner.entry.file.lines[owner.entry.path]}"
            message = f"the ID {quote(owner.id)} is taken already, at {place}"
            report.add(entry.file.problem(entry.path, message))
