"""Store the state of all inputs of an export, to recognize an export without changes.

A file is unchanged if its kind, size, inode and change time (`st_ctime`) are. The states of
installed packages are read only if the stamp of one of their files changed. No snapshot is written
if an input changed since the export began, or an output since it was compared with its record. The
file system's own clock decides that, so a later edit always has another change time. This module
imports neither pydantic nor the manifest: its imports are the cost of an export without changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
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
_FORMAT = 8
#: Nanoseconds by which the clock of another file system may differ from the build folder's.
_CLOCK_RESOLUTION = 2_000_000_000
#: Nanoseconds by which two clocks of a machine may drift apart in an export.
_DRIFT = 50_000_000
#: Seconds after which the clock of a file system has another value, in most of them.
_TICK = 0.005
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
    outputs: Mapping[str, Iterable[str]]
    """The files that an export wrote: names by folder."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time by the clock of the build folder's file system."""

    changed: int
    """`st_ctime_ns` of a file that was created then; 0 if no file can be created."""
    device: int
    """The file system."""
    steady: int
    """The same time by a clock that nobody sets, in nanoseconds."""

    def is_before(self, later: Moment) -> bool:
        """Return False if the clock may have been set back between both, so its times mislead."""
        elapsed = later.changed - self.changed
        return bool(self.changed) and elapsed >= later.steady - self.steady - _DRIFT


def read_filesystem_clock(root: Path) -> Moment:
    """Return the current time of the file system with the build folder, which need not exist."""
    build_path = _find_build_folder(root)
    folders = (folder for folder in (build_path, *build_path.parents) if folder.is_dir())
    steady = time.monotonic_ns()
    with suppress(OSError, StopIteration), tempfile.TemporaryFile(dir=next(folders)) as file:
        state = os.fstat(file.fileno())
        return Moment(changed=state.st_ctime_ns, device=state.st_dev, steady=steady)
    return Moment(changed=0, device=0, steady=steady)


def read_next_tick(root: Path) -> Moment:
    """Return a time later than that of all files that exist now, if the clock is a usual one."""
    before = read_filesystem_clock(root)
    for _ in range(10):
        time.sleep(_TICK)
        now = read_filesystem_clock(root)
        if now.changed != before.changed:
            break
    return now


@dataclass(frozen=True, slots=True)
class ProjectStart:
    """What an export read before its results: settings, manifests, and what both name."""

    inputs: NoopInputs
    state: str
    """A hash of the stamps of the files; "" if one was removed in between."""

    def is_unchanged(self, root: Path) -> bool:
        """Return whether no file was edited or replaced since, also by a rename of its folder."""
        return self.state != "" and self == _observe(root, self.inputs)


def save_snapshot(
    root: Path,
    build_path: Path,
    inputs: NoopInputs,
    summary: ExportSummary,
    since: Moment,
    checked: Moment,
) -> None:
    """Write the snapshot, unless an input or an output may have changed during the export.

    `since` is a time before the first input was read, and `checked` one before the outputs were
    compared with their records.
    """
    try:
        state = _read_state(root, inputs, since.device)
    except OSError:
        return
    is_known = since.is_before(checked) and since.device == checked.device
    is_older = state.newest_input < since.changed and state.newest_output < checked.changed
    if is_known and is_older and _is_unchanged(root, inputs, compares_packages=True):
        snapshot = {
            "format": _FORMAT,
            "tools": read_tool_parts(),
            "state": state.digest,
            "inputs": asdict(inputs),
            "summary": asdict(summary),
        }
        _write_snapshot(build_path, snapshot, since.changed)


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
        if _read_state(root, inputs).digest != snapshot["state"]:
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


@dataclass(frozen=True, slots=True)
class _State:
    """The state of all files."""

    digest: str
    """A hash of their stamps."""
    newest_input: int
    """The time of the latest change."""
    newest_output: int


def _read_state(root: Path, inputs: NoopInputs, device: int = 0) -> _State:
    """Return the state of all files. Those that are not on the device count as later.

    Raises:
        OSError: if a file does not exist or cannot be read.
    """
    digest = hashlib.sha256()
    of_inputs = chain(
        _read_stamps(root, inputs.files, device), _read_trees(root, inputs.trees, device)
    )
    newest = []
    for stamps in (of_inputs, _read_stamps(root, inputs.outputs, device)):
        newest.append(0)
        for stamp, changed in stamps:
            digest.update(stamp.encode())
            newest[-1] = max(newest[-1], changed)
    return _State(digest.hexdigest(), *newest)


def _read_stamps(
    root: Path, files: Mapping[str, Iterable[str]], device: int
) -> Iterator[tuple[str, int]]:
    for folder, names in files.items():
        path = os.path.join(root, folder)  # noqa: PTH118 - 20,000 Path objects would double the time
        for name in names:
            yield _stamp_file(f"{path}/{name}", device)


def _read_trees(root: Path, trees: Iterable[str], device: int) -> Iterator[tuple[str, int]]:
    for tree in trees:
        for parent, folders, names in os.walk(root / tree):
            folders[:] = sorted(name for name in folders if name != _PYCACHE)
            for name in (*folders, *sorted(names)):
                yield _stamp_file(f"{parent}/{name}", device, label=name, is_in_tree=True)


def _stamp_file(
    path: str, device: int, label: str = "", *, is_in_tree: bool = False
) -> tuple[str, int]:
    """Return the stamp of a file and the time of its last change.

    The stamp of a symlink includes its target, that of a folder the time at which a name in it
    changed. In a tree it contains no time, because all names have their own stamps.
    """
    state = os.lstat(path)
    if is_in_tree and stat.S_ISDIR(state.st_mode):
        return f"{label} folder;", 0
    stamp = f"{label} {state.st_mode} {state.st_size} {state.st_ino} {state.st_ctime_ns};"
    changed = _find_latest_change(state, device)
    if stat.S_ISLNK(state.st_mode):
        target = Path(path).stat()
        stamp += f"{target.st_mode} {target.st_size} {target.st_ino} {target.st_ctime_ns};"
        changed = max(changed, _find_latest_change(target, device))
    return stamp, changed


def _find_latest_change(state: os.stat_result, device: int) -> int:
    """Return the change time, or the latest possible one if another clock measured it."""
    return state.st_ctime_ns + (0 if state.st_dev == device else _CLOCK_RESOLUTION)


def _find_build_folder(root: Path) -> Path:
    """Return the build folder of the project, the default if the settings are invalid."""
    return root.absolute() / read_setting(root, "build", "build")


def observe_project(loaded: LoadedProject, page_inputs: Iterable[Path]) -> ProjectStart:
    """Return the state of what was read before the results of an export.

    `page_inputs` are the files and folders from which the reports are rendered.
    """
    # `load_snapshot` must not import it: it needs pydantic, 110 ms.
    from exporter.virtual_environments import STAMP

    project = loaded.manifest.project
    root = Path(project.root)
    stamps = {
        project.environments_folder / device.environment.definition.key / STAMP
        for device in project.devices
        if device.environment
    }
    stamps |= {
        project.environments_folder / definition.key / STAMP
        for definition in project.job_environments.values()
    }
    page_inputs = [*page_inputs]
    pages = (path for path in page_inputs if not path.is_dir())
    paths = {root / SETTINGS_FILE, *stamps, *loaded.files, *pages}
    existing = {path for path in paths if path.exists()}
    inputs = NoopInputs(
        files=_group_by_folder(_make_relative(path, root) for path in sorted(existing)),
        absent=sorted(_make_relative(path, root) for path in paths - existing),
        trees=[
            *project.manifests,
            *(_make_relative(path, root) for path in page_inputs if path.is_dir()),
        ],
        outputs={},
        listings={},
        packages={},
        overlays={},
        variables={},
        patterns={},
    )
    return _observe(root, inputs)


def _observe(root: Path, inputs: NoopInputs) -> ProjectStart:
    try:
        return ProjectStart(inputs, _read_state(root, inputs).digest)
    except OSError:
        return ProjectStart(inputs, "")


def collect_inputs(
    project: Project, start: ProjectStart, results: Results, pages: Iterable[Path]
) -> NoopInputs:
    """Return the inputs that must not change for the next export to be a no-op.

    No cell would run, and none is missing. `pages` are the files that the reports consist of.
    """
    # `load_snapshot` must not import it: it needs pydantic, 110 ms.
    from exporter.pipeline.build_folder import BuildFolder

    root, build_folder = Path(project.root), BuildFolder.from_project(project)
    records = [record for record in results.run.records if record.status != "skip"]
    sources = {each.file: each.state for record in records for each in record.sources}
    listings = {file: state for file, state in sources.items() if split_listing(file)}
    missing = {file for file, state in sources.items() if state == MISSING}
    unplugged = {file for record in records for file in record.absent}
    # The folders of all samples with which artifacts were proved.
    proved = dict.fromkeys(
        build_folder.cell_folder(each.cell).path for each in records if each.artifact
    )
    samples = [path for folder in proved for path in sorted(folder.glob("test_data_set_*"))]
    outputs = [
        _make_relative(build_folder.results, root),
        *(_make_relative(path, root) for path in pages),
        *(name for record in records for name in _list_cell_files(record, project, build_folder)),
        # A new file changes the time of its folder: to read each folder would double the time.
        *(
            f"{project.build}/{path.relative_to(build_folder.path).as_posix()}/{name}"
            for path in samples
            for name in (".", *sorted(os.listdir(path)))  # noqa: PTH208 - names, not Path objects
        ),
    ]
    files = (file for file in sources if file not in listings and file not in missing)
    absent = [*build_folder.private_paths, build_folder.shard_note]
    files_of_start = (
        f"{folder}/{name}" if folder else name
        for folder, names in start.inputs.files.items()
        for name in names
    )
    return replace(
        start.inputs,
        files=_group_by_folder((*files_of_start, *files)),
        absent=sorted(
            (
                *start.inputs.absent,
                *(_make_relative(path, root) for path in absent),
                *missing,
                *unplugged,
            )
        ),
        outputs=_group_by_folder(outputs),
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


def _group_by_folder(files: Iterable[str]) -> dict[str, list[str]]:
    by_folder: dict[str, list[str]] = {}
    for file in dict.fromkeys(files):
        folder, _, name = file.rpartition("/")
        by_folder.setdefault(folder, []).append(name)
    return by_folder


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
