"""Everything that the outcome of an export without anything to do was made from.

In: the project as it was loaded, its results and the pages of its report. Out: a `NoopInputs`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path

from exporter.build.decisions.build_results import Results
from exporter.build.folder.build_folder import BuildFolder
from exporter.cache.fingerprint import LISTING
from exporter.cache.noop_snapshot import NoopInputs
from exporter.manifest import LoadedProject, Project
from exporter.planning.shards import SHARD_NOTE
from exporter.records.record import Record, Status

_PYPROJECT = "pyproject.toml"


def collect_noop_inputs(
    loaded: LoadedProject, results: Results, pages: Iterable[Path], today: date
) -> NoopInputs:
    """What has to stay as it is for the next export to end as this one.

    Args:
        loaded: The project.
        results: Of all its cells; none was run for them, and none is missing.
        pages: Every file and folder that the reports were made from or written to.
        today: The date by which expectations end.
    """
    project = loaded.manifest.project
    root, build = Path(project.root), BuildFolder.from_project(project)
    records = [record for record in results.run.records if record.status is not Status.SKIP]
    sources = {each.file: each.sha256 for record in records for each in record.sources}
    listings = {file: sha for file, sha in sources.items() if posixpath.basename(file) == LISTING}
    read = {root / _PYPROJECT, *loaded.files, *(path for path in pages if not path.is_dir())}
    there = {path for path in read if path.exists()}
    files = [
        *(_name(path, root) for path in sorted(there)),
        *(_name(build.results, root), *(file for file in sources if file not in listings)),
        *(name for record in records for name in _built(record, project, build)),
    ]
    absent = [*(read - there), *build.private_paths, build.path / SHARD_NOTE]
    return NoopInputs(
        day=today.isoformat(),
        files=_by_folder(dict.fromkeys(files)),
        absent=sorted(_name(path, root) for path in absent),
        trees=[project.manifests, *(_name(path, root) for path in pages if path.is_dir())],
        listings=listings,
        packages={name: state for each in records for name, state in each.packages.items()},
    )


def _built(record: Record, project: Project, build: BuildFolder) -> Iterator[str]:
    """What lies in the build folder of a cell, relative to the project."""
    folder = f"{project.build}/{record.cell.model}"
    path = build.model_folder(record.cell.model).record(record.cell)
    yield f"{folder}/{path.parent.name}/{path.name}"
    if record.artifact:
        yield f"{project.build}/{record.artifact.file}"
        for name in record.artifact.external_data:
            yield f"{folder}/{name}"


def _name(path: Path, root: Path) -> str:
    """Relative to the project where it lies inside."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _by_folder(files: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in files:
        folder, _, name = file.rpartition("/")
        found.setdefault(folder, []).append(name)
    return found
