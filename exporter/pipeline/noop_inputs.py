"""List all inputs of an export in which no cell ran, for the no-op snapshot."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path

from exporter.cache.noop_snapshot import NoopInputs
from exporter.cache.states import (
    ALL_FILES,
    DISTRIBUTIONS,
    LISTING,
    MISSING,
    read_package_state,
    read_variables,
)
from exporter.environments import STAMP, find_environment
from exporter.manifest import LoadedProject, Project
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import Results
from exporter.planning.shards import SHARD_NOTE
from exporter.records.record import Record, Status

_PYPROJECT = "pyproject.toml"


def collect_noop_inputs(
    loaded: LoadedProject, results: Results, reports: Iterable[Path], today: date
) -> NoopInputs:
    """Return the inputs that must not change for the next export to be a no-op.

    No cell ran, and none is missing. `reports` are the files and folders that the reports were read
    from or written to.
    """
    project = loaded.manifest.project
    root, build = Path(project.root), BuildFolder.from_project(project)
    records = [record for record in results.run.records if record.status is not Status.SKIP]
    sources = {each.file: each.state for record in records for each in record.sources}
    listings = {
        file: state
        for file, state in sources.items()
        if posixpath.basename(file) in (LISTING, ALL_FILES)
    }
    missing = {file for file, state in sources.items() if state == MISSING}
    stamps = {
        project.environments_folder / device.environment.definition.key / STAMP
        for device in project.devices
        if device.environment
    }
    stamps |= {
        project.environments_folder / toolchain.definition.key / STAMP
        for toolchain in project.toolchains
    }
    pages = (path for path in reports if not path.is_dir())
    paths = {root / _PYPROJECT, *stamps, *loaded.files, *pages}
    existing = {path for path in paths if path.exists()}
    files = [
        *(_make_relative(path, root) for path in sorted(existing)),
        _make_relative(build.results, root),
        *(file for file in sources if file not in listings and file not in missing),
        *(name for record in records for name in _list_cell_files(record, project, build)),
    ]
    by_folder: dict[str, list[str]] = {}
    for file in dict.fromkeys(files):
        folder, _, name = file.rpartition("/")
        by_folder.setdefault(folder, []).append(name)
    absent = [*(paths - existing), *build.private_paths, build.path / SHARD_NOTE]
    return NoopInputs(
        day=today.isoformat(),
        files=by_folder,
        absent=sorted((*(_make_relative(path, root) for path in absent), *missing)),
        trees=[
            project.manifests,
            *(_make_relative(path, root) for path in reports if path.is_dir()),
            *_list_samples(records, project, build),
        ],
        listings=listings,
        packages={
            name: state
            for each in records
            if build.owns(each.cell)
            for name, state in each.packages.items()
        },
        overlays=_list_overlays(project, records),
        variables={name: state for each in records for name, state in each.variables.items()},
        patterns={
            " ".join(patterns): read_variables(patterns)
            for patterns in {
                (*project.environment, *spec.depends.environment) for spec in loaded.manifest.models
            }
        },
    )


def _list_cell_files(record: Record, project: Project, build: BuildFolder) -> Iterator[str]:
    """Yield the record and the artifact of a cell, relative to the project."""
    model = build.cell_folder(record.cell)
    folder = f"{project.build}/{model.path.relative_to(build.path).as_posix()}"
    path = model.record(record.cell)
    yield f"{folder}/{path.parent.name}/{path.name}"
    if record.artifact:
        yield f"{folder}/{model.reference.name}"
        yield f"{project.build}/{record.artifact.file}"
        for name in record.artifact.external_data:
            yield f"{folder}/{name}"


def _list_overlays(project: Project, records: Iterable[Record]) -> dict[str, dict[str, str]]:
    """Return the states of the packages of each toolchain, by the folder of its packages."""
    packages: dict[str, dict[str, str]] = {}
    for record in records:
        name = record.cell.device.toolchain
        packages.setdefault(name, {}).update(record.packages)
    overlays = {}
    for toolchain in project.toolchains:
        installed = find_environment(toolchain.definition, project.environments_folder)
        if installed and toolchain.name in packages:
            folder = str(installed.package_folder)
            tools = {name: read_package_state(name, folder) for name in DISTRIBUTIONS}
            overlays[folder] = tools | packages[toolchain.name]
    return overlays


def _list_samples(records: Iterable[Record], project: Project, build: BuildFolder) -> Iterator[str]:
    """Yield the folders of all samples with which artifacts were proved."""
    for folder in dict.fromkeys(
        build.cell_folder(record.cell).path for record in records if record.artifact
    ):
        for path in sorted(folder.glob("test_data_set_*")):
            yield f"{project.build}/{path.relative_to(build.path).as_posix()}"


def _make_relative(path: Path, root: Path) -> str:
    """Return the path relative to the project if it is inside."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
