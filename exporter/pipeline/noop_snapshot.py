"""Store the state of all inputs of an export, to recognize an export without changes.

A file is unchanged if its kind, size, inode and change time (`st_ctime`) are. The states of
installed packages are read only if the stamp of one of their files changed. If a file changed
during the export or shortly before, no snapshot is written. This module imports neither pydantic
nor the manifest: its imports are the cost of an export without changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cache.installed_files import InstalledFiles, describe_installed_files
from exporter.cache.states import (
    DISTRIBUTIONS,
    MISSING,
    TOOL_PREFIX,
    hash_source,
    is_distribution,
    list_package_folders,
    list_searched_folders,
    read_loaded_state,
    read_own_parts,
    read_package_state,
    read_tool_parts,
    read_variable_state,
    read_variables,
    split_listing,
)
from exporter.core.errors import ExporterError, ExportSummary
from exporter.core.files import PROJECT_LIMIT, read_regular_file, write_text
from exporter.core.toml_table import SETTINGS_FILE, read_setting

if TYPE_CHECKING:
    from exporter.manifest import LoadedProject, Project
    from exporter.pipeline.build_folder import BuildFolder
    from exporter.pipeline.decisions import Results
    from exporter.records.record import Record

#: The file name in the build folder.
_SNAPSHOT = "untouched.json"
#: Raised with every change that an older reader would misunderstand.
_FORMAT = 7
#: Nanoseconds within which two changes can have the same timestamp.
_CLOCK_RESOLUTION = 2_000_000_000
#: A folder that Python fills.
_PYCACHE = "__pycache__"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoopInputs:
    """All inputs of an export. Paths are absolute or relative to the project."""

    files: Mapping[str, Iterable[str]]
    """Names by folder. A name may contain folders."""
    absent: Iterable[str]
    """Paths that did not exist."""
    trees: Iterable[str]
    """Folders with all files in them. A new file is a change."""
    listings: Mapping[str, str]
    """The hash of the importable names of a folder, by `folder/*.py`."""
    packages: Mapping[str, str]
    """The states of installed distributions, by name."""
    overlays: Mapping[str, Mapping[str, str]]
    """The same for each environment that delivers results, by the folder of its packages."""
    variables: Mapping[str, str]
    """The states of environment variables that models read, by name."""
    patterns: Mapping[str, str]
    """The hash of the environment variables of each group of models, by their patterns."""


def read_filesystem_clock(root: Path) -> int:
    """Return the time of the build folder's file system in nanoseconds.

    Returns:
        The time, or 0 if the folder does not exist or cannot be written.
    """
    path = _find_build_folder(root) / ".now"
    with suppress(OSError):
        path.unlink(missing_ok=True)
        with path.open("x"):
            now = path.lstat().st_ctime_ns
        path.unlink()
        return now
    return 0


def save_snapshot(
    root: Path, build_path: Path, inputs: NoopInputs, summary: ExportSummary, since: int
) -> None:
    """Write the snapshot, unless an input may have changed during the export.

    `since` is `read_filesystem_clock` before the first input was read.
    """
    try:
        state, newest = _read_state(root, inputs)
    except OSError:
        return
    if newest < since - _CLOCK_RESOLUTION and _is_unchanged(root, inputs, compares_packages=True):
        snapshot = {
            "format": _FORMAT,
            "tools": read_tool_parts(),
            "state": state,
            "inputs": asdict(inputs),
            "summary": asdict(summary),
        }
        _write_snapshot(build_path, snapshot, since)


def _write_snapshot(build_path: Path, snapshot: Mapping[str, object], since: int) -> None:
    """Write a snapshot with the stamps of installed packages, unless one may have changed since."""
    installed = describe_installed_files(_list_folders(), since - _CLOCK_RESOLUTION)
    snapshot = {**snapshot, "installed": asdict(installed) if installed else None}
    with suppress(ExporterError):  # the next export runs all comparisons
        write_text(build_path / _SNAPSHOT, json.dumps(snapshot, separators=(",", ":")) + "\n")


def _list_folders() -> list[str]:
    """Return the folders of packages of this process."""
    return [*list_searched_folders(), *list_package_folders()]


def load_snapshot(root: Path) -> ExportSummary | None:
    """Return the summary of the last export if no input changed."""
    root, build_path = root.absolute(), _find_build_folder(root)
    try:
        snapshot = json.loads(read_regular_file(build_path / _SNAPSHOT, PROJECT_LIMIT))
        if snapshot["format"] != _FORMAT or not _have_same_own_parts(snapshot["tools"]):
            return None
        inputs = NoopInputs(**snapshot["inputs"])
        if _read_state(root, inputs)[0] != snapshot["state"]:
            return None
        installed = snapshot["installed"]
        is_installed = bool(installed) and InstalledFiles(**installed).are_unchanged(
            _list_folders()
        )
        if not is_installed and snapshot["tools"] != read_tool_parts():
            return None
        if not _is_unchanged(root, inputs, compares_packages=not is_installed):
            return None
        lines = tuple((text, color) for text, color in snapshot["summary"]["lines"])
        summary = ExportSummary(**{**snapshot["summary"], "lines": lines})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # no snapshot, or one of another format
    if not is_installed:  # an installation of other packages, or a reinstallation
        _write_snapshot(build_path, snapshot, time.time_ns())
    return summary


def _have_same_own_parts(tools: Mapping[str, str]) -> bool:
    """Return True if Python, the platform and this package are those of a snapshot."""
    of_packages = {f"{TOOL_PREFIX}{name}" for name in DISTRIBUTIONS}
    return {part: old for part, old in tools.items() if part not in of_packages} == read_own_parts()


def _is_unchanged(root: Path, inputs: NoopInputs, *, compares_packages: bool) -> bool:
    """Return True if the inputs without a timestamp are unchanged."""
    return (
        not any(os.path.lexists(root / name) for name in inputs.absent)
        and all(hash_source(root / name) == before for name, before in inputs.listings.items())
        and all(
            read_loaded_state(name, root, folder) == old
            for folder, packages in (("", inputs.packages), *inputs.overlays.items())
            for name, old in packages.items()
            if compares_packages or not is_distribution(name)
        )
        and all(read_variable_state(name) == old for name, old in inputs.variables.items())
        and all(
            read_variables(patterns.split()) == old for patterns, old in inputs.patterns.items()
        )
    )


def _read_state(root: Path, inputs: NoopInputs) -> tuple[str, int]:
    """Return a hash of the stamps of all files, and the time of the latest change.

    Raises:
        OSError: if a file does not exist or cannot be read.
    """
    digest = hashlib.sha256()
    newest = 0
    for stamp, changed in _read_stamps(root, inputs):
        digest.update(stamp.encode())
        newest = max(newest, changed)
    return digest.hexdigest(), newest


def _read_stamps(root: Path, inputs: NoopInputs) -> Iterator[tuple[str, int]]:
    for folder, names in inputs.files.items():
        path = os.path.join(root, folder)  # noqa: PTH118 - 20,000 Path objects would double the time
        for name in names:
            yield _stamp_file(f"{path}/{name}")
    for tree in inputs.trees:
        for parent, folders, names in os.walk(root / tree):
            folders[:] = sorted(name for name in folders if name != _PYCACHE)
            for name in (*folders, *sorted(names)):
                yield _stamp_file(f"{parent}/{name}", label=name, is_in_tree=True)


def _stamp_file(path: str, label: str = "", *, is_in_tree: bool = False) -> tuple[str, int]:
    """Return the stamp of a file and the time of its last change.

    The stamp of a symlink includes its target, that of a folder the time at which a name in it
    changed. In a tree it contains no time, because all names have their own stamps.
    """
    state = os.lstat(path)
    if is_in_tree and stat.S_ISDIR(state.st_mode):
        return f"{label} folder;", 0
    stamp = f"{label} {state.st_mode} {state.st_size} {state.st_ino} {state.st_ctime_ns};"
    if stat.S_ISLNK(state.st_mode):
        target = Path(path).stat()
        stamp += f"{target.st_mode} {target.st_size} {target.st_ino} {target.st_ctime_ns};"
        return stamp, max(state.st_ctime_ns, target.st_ctime_ns)
    return stamp, state.st_ctime_ns


def _find_build_folder(root: Path) -> Path:
    """Return the build folder of the project, the default if the settings are invalid."""
    return root.absolute() / read_setting(root, "build", "build")


def collect_inputs(loaded: LoadedProject, results: Results, reports: Iterable[Path]) -> NoopInputs:
    """Return the inputs that must not change for the next export to be a no-op.

    No cell ran, and none is missing. `reports` are the files and folders that the reports were read
    from or written to.
    """
    # `load_snapshot` must not import these: they need pydantic, 110 ms.
    from exporter.pipeline.build_folder import BuildFolder
    from exporter.virtual_environments import STAMP

    project = loaded.manifest.project
    root, build_folder = Path(project.root), BuildFolder.from_project(project)
    records = [record for record in results.run.records if record.status != "skip"]
    sources = {each.file: each.state for record in records for each in record.sources}
    listings = {file: state for file, state in sources.items() if split_listing(file)}
    missing = {file for file, state in sources.items() if state == MISSING}
    unplugged = {file for record in records for file in record.absent}
    stamps = {
        project.environments_folder / device.environment.definition.key / STAMP
        for device in project.devices
        if device.environment
    }
    stamps |= {
        project.environments_folder / definition.key / STAMP
        for definition in project.job_environments.values()
    }
    pages = (path for path in reports if not path.is_dir())
    # The folders of all samples with which artifacts were proved.
    proved = dict.fromkeys(
        build_folder.cell_folder(each.cell).path for each in records if each.artifact
    )
    samples = [path for folder in proved for path in sorted(folder.glob("test_data_set_*"))]
    paths = {root / SETTINGS_FILE, *stamps, *loaded.files, *pages}
    existing = {path for path in paths if path.exists()}
    files = [
        *(_make_relative(path, root) for path in sorted(existing)),
        _make_relative(build_folder.results, root),
        *(file for file in sources if file not in listings and file not in missing),
        *(name for record in records for name in _list_cell_files(record, project, build_folder)),
        # A new file changes the time of its folder: to read each folder would double the time.
        *(
            f"{project.build}/{path.relative_to(build_folder.path).as_posix()}/{name}"
            for path in samples
            for name in (".", *sorted(os.listdir(path)))  # noqa: PTH208 - names, not Path objects
        ),
    ]
    by_folder: dict[str, list[str]] = {}
    for file in dict.fromkeys(files):
        folder, _, name = file.rpartition("/")
        by_folder.setdefault(folder, []).append(name)
    absent = [*(paths - existing), *build_folder.private_paths, build_folder.shard_note]
    return NoopInputs(
        files=by_folder,
        absent=sorted((*(_make_relative(path, root) for path in absent), *missing, *unplugged)),
        trees=[
            *project.manifests,
            *(_make_relative(path, root) for path in reports if path.is_dir()),
        ],
        listings=listings,
        packages={
            name: state
            for each in records
            if build_folder.owns(each.cell)
            for name, state in each.packages.items()
        },
        overlays=_list_overlays(project, records),
        variables={name: state for each in records for name, state in each.variables.items()},
        patterns={" ".join(project.environment): read_variables(project.environment)},
    )


def _list_cell_files(record: Record, project: Project, build_folder: BuildFolder) -> Iterator[str]:
    """Yield the record and the artifact of a cell, relative to the project."""
    model = build_folder.cell_folder(record.cell)
    folder = f"{project.build}/{model.path.relative_to(build_folder.path).as_posix()}"
    path = model.record(record.cell)
    yield f"{folder}/{path.parent.name}/{path.name}"
    if record.artifact:
        yield f"{folder}/{model.reference.name}"
        yield f"{project.build}/{record.artifact.file}"
        for name in record.artifact.external_data:
            yield f"{folder}/{name}"


def _list_overlays(project: Project, records: Iterable[Record]) -> dict[str, dict[str, str]]:
    """Return the states of the packages of each suffix, by the folder of its packages."""
    from exporter.virtual_environments import find_environment  # needs pydantic, 40 ms

    packages: dict[str, dict[str, str]] = {}
    for record in records:
        name = record.cell.device.suffix
        packages.setdefault(name, {}).update(record.packages)
    overlays = {}
    for suffix, definition in project.job_environments.items():
        installed = find_environment(definition, project.environments_folder)
        if installed and suffix in packages:
            folder = str(installed.package_folder)
            tools = {name: read_package_state(name, folder) for name in DISTRIBUTIONS}
            overlays[folder] = tools | packages[suffix]
    return overlays


def _make_relative(path: Path, root: Path) -> str:
    """Return the path relative to the project if it is inside."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
