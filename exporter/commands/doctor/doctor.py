"""The command `doctor`: installed packages, devices, machine, project and stored results."""

from __future__ import annotations

import os
import platform
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import Field

from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.cache.states import read_tool_versions
from exporter.core.errors import ExporterError
from exporter.core.files import describe_owner, list_inaccessible
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.git import find_head
from exporter.core.import_object import COMMAND_GROUP, RUNTIME_GROUP, find_plugins
from exporter.core.system import (
    IS_LINUX,
    count_cores,
    describe_platform,
    list_limits,
    measure_memory,
)
from exporter.core.text import (
    format_byte_limit,
    format_bytes,
    format_requirement,
    join_names,
    pluralize,
)
from exporter.core.toml_table import SETTINGS_FILE, TomlTable, find_settings, read_toml_table
from exporter.manifest import Manifest, Project, load_project
from exporter.manifest.syntax.runtimes import RUNTIMES
from exporter.manifest.syntax.silent_faults import list_silent_faults
from exporter.manifest.syntax.values import is_in_range
from exporter.pipeline.build_folder import BuildFolder, StoredRecords
from exporter.pipeline.decisions import RecordValidator, find_lost_proof
from exporter.pipeline.device_environments import (
    list_environments,
    list_garbage,
    locate_environment,
    locate_environments,
)
from exporter.pipeline.required_packages import require_own_checkout
from exporter.planning.plan import list_all_cells, make_plan, order_links_first
from exporter.processes import ForkServerStarter
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.records.record import CellId, Record, read_run
from exporter.store import Store


class ImportedPackages(FrozenModel):
    """The packages of a worker, as a child process imports them."""

    versions: dict[str, str] = Field(default_factory=dict)
    """The version of each package that can be imported."""
    import_errors: dict[str, str] = Field(default_factory=dict)
    """The error of each package that cannot be imported."""
    is_known_torch: bool = False
    """True if one capture can serve all opsets; see `worker/torch_private`."""
    known_torch: Items[str] = ()
    """The versions of torch with that property, such as `2.13`."""
    providers: Items[str] = ()
    """The execution providers of this ONNX Runtime."""


class Level(StrEnum):
    """The importance of a diagnosis."""

    OK = "ok"
    NOTE = "note"
    """An export works, but it is slower than possible, or lacks an optional part."""
    PROBLEM = "problem"
    """An export fails, or stored results are damaged."""


class Diagnosis(FrozenModel):
    """One line of the doctor."""

    level: Level
    subject: str
    """`torch`, `device cuda`, `store`."""
    message: str

    @classmethod
    def ok(cls, subject: str, message: str) -> Diagnosis:
        """Return a diagnosis that needs no action."""
        return cls(level=Level.OK, subject=subject, message=message)

    @classmethod
    def note(cls, subject: str, message: str) -> Diagnosis:
        """Return a diagnosis that may need an action."""
        return cls(level=Level.NOTE, subject=subject, message=message)

    @classmethod
    def problem(cls, subject: str, message: str) -> Diagnosis:
        """Return a diagnosis that needs an action."""
        return cls(level=Level.PROBLEM, subject=subject, message=message)


class Examination(FrozenModel):
    """All diagnoses of one run, as `doctor --json` prints them."""

    findings: Items[Diagnosis]


_CHILD = "exporter.commands.doctor.child"
#: Seconds: the first start of the libraries of a GPU is slow.
_TIMEOUT = 120.0
#: Packages whose compiled code fits one release of torch.
COMPANIONS = ("torchvision", "torchaudio")

#: The oldest versions that work; a test compares them with pyproject.toml.
MINIMUM_PYTHON = "3.11"
MINIMUM_VERSIONS = {
    "torch": "2.10",
    "onnx": "1.21",
    "onnxscript": "0.7.1",
    "onnxruntime": RUNTIMES["onnxruntime"].oldest,
    "numpy": "2.0",
    "safetensors": "0.4.3",
}
OPTIONAL = {
    row.package: (row.oldest, f"only the device {name} needs it")
    for name, row in RUNTIMES.items()
    if row.oldest and row.package not in MINIMUM_VERSIONS
}


def examine_packages(environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Return a diagnosis of Python and of each package, imported as in a worker."""
    python = f"{platform.python_version()} on {describe_platform()}"
    if is_older(platform.python_version(), MINIMUM_PYTHON):
        yield Diagnosis.problem("python", f"{python}: {MINIMUM_PYTHON} or later is needed")
    else:
        yield Diagnosis.ok("python", python)
    function = f"{_CHILD}:import_packages"
    try:
        packages = call_in_child(function, {}, ImportedPackages, environment, seconds=_TIMEOUT)
    except ChildFailure as failure:
        packages = ImportedPackages()
        yield Diagnosis.problem("packages", f"its process {failure}")
    for name, minimum in MINIMUM_VERSIONS.items():
        yield _examine_package(name, minimum, packages)
    for name in filter(_find_version, COMPANIONS):
        yield _examine_package(name, "0", packages)
    for name, (minimum, use) in OPTIONAL.items():
        if installed := _find_version(name):
            yield _compare_version(name, installed, minimum)
        else:
            yield Diagnosis.ok(name, f"not installed: {use}")


def examine_entry_points(commands: Collection[str]) -> Iterator[Diagnosis]:
    """Return a note about each command and runtime of another package that a built-in one hides."""
    for group, names in ((COMMAND_GROUP, commands), (RUNTIME_GROUP, RUNTIMES)):
        kind = group.rpartition(".")[2].removesuffix("s")
        for name, entry_point in find_plugins(group).items():
            if name in names:
                owner = entry_point.dist.name if entry_point.dist else entry_point.value
                message = f"{owner} has a {kind} with the name of a built-in one, which is used; "
                yield Diagnosis.note(f"{kind} {name}", f"{message}rename that of the package")


def examine_fork_server(environment: Mapping[str, str]) -> Diagnosis:
    """Return a problem if the fork server, which has torch imported, does not start."""
    if not IS_LINUX:
        message = (
            "each imports torch for some seconds, and reads by native code, such as of a tokenizer,"
            " are not seen: list these files in `depends`; docs/devices.md has all differences"
        )
        return Diagnosis.note("workers", message)
    starter = ForkServerStarter(environment)
    try:
        if starter.is_available():
            return Diagnosis.ok("workers", "the fork server has torch imported")
    finally:
        starter.close()
    return Diagnosis.problem("workers", "the fork server does not start")


def examine_instruments(root: Path, environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Return a problem for each instrument of a verdict that reports nothing in a worker."""
    function, arguments = f"{_CHILD}:list_silent_instruments", {"root": root}
    try:
        silent = call_in_child(function, arguments, tuple[str, ...], environment, seconds=_TIMEOUT)
    except (ChildFailure, ExporterError) as failure:
        yield Diagnosis.problem("instruments", f"their process {failure}")
        return
    for text in silent:
        yield Diagnosis.problem("instruments", f"{text}: the cells say so")
    if not silent:
        yield Diagnosis.ok("instruments", "each reports a known example of what it searches")


def is_older(installed: str, minimum: str) -> bool:
    """Return True if a version such as `2.9.1+cpu` is older than `2.10`."""
    return not is_in_range(installed, f">={minimum}")


def _examine_package(name: str, minimum: str, packages: ImportedPackages) -> Diagnosis:
    installed = packages.versions.get(name) or _find_version(name)
    if not installed:
        fix = f"`pip install '{format_requirement('export')}'`"
        return Diagnosis.problem(name, f"not installed: an export needs {fix}")
    if error := packages.import_errors.get(name):
        torch = packages.versions.get("torch") if name in COMPANIONS else ""
        fit = f" beside torch {torch}; install both from one index" if torch else ""
        return Diagnosis.problem(name, f"{installed} cannot be imported: {error}{fit}")
    diagnosis = _compare_version(name, installed, minimum)
    if diagnosis.level is not Level.OK:
        return diagnosis
    if name == "torch" and packages.versions:
        if packages.is_known_torch:
            return Diagnosis.ok(name, f"{installed}: one capture serves all opsets")
        tested = " or ".join(packages.known_torch)
        return Diagnosis.note(
            name,
            f"{installed} is not {tested}: exports use only the public interface of torch and "
            "decompose the model for each opset, which is slower",
        )
    if name == "onnxruntime" and packages.providers:
        return Diagnosis.ok(name, f"{installed} with {', '.join(packages.providers)}")
    return diagnosis


def _compare_version(name: str, installed: str, minimum: str) -> Diagnosis:
    faults = [*list_silent_faults({name: installed})]
    if is_older(installed, minimum):
        message = f"{installed} is too old: {minimum} or later is needed"
        return Diagnosis.problem(name, "; ".join((message, *faults)))
    if faults:
        return Diagnosis.problem(name, "; ".join(faults))
    return Diagnosis.ok(name, installed)


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


_GIB = 1 << 30
#: Bytes that one model of moderate size needs with its float64 model.
_LITTLE_MEMORY = 3 * _GIB
#: Bytes that the files of a few models need.
_LITTLE_DISK = _GIB


def examine_machine(root: Path, jobs: int, environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    memory, cores = measure_memory(), pluralize(count_cores(), "core")
    machine = f"{cores}, {memory / _GIB:.1f} GiB of memory, {pluralize(jobs, 'parallel job')}"
    if limits := [limit.file for limit in list_limits()]:
        machine += f"; limited by {join_names(limits)}"
    if memory < _LITTLE_MEMORY:
        yield Diagnosis.note("machine", f"{machine}; large models may run out of memory")
    else:
        yield Diagnosis.ok("machine", machine)
    free = shutil.disk_usage(root).free
    disk = f"{free / _GIB:.1f} GiB are free"
    yield (Diagnosis.note if free < _LITTLE_DISK else Diagnosis.ok)("disk", disk)
    yield _examine_git(root, environment)


def _examine_git(root: Path, environment: Mapping[str, str]) -> Diagnosis:
    need = "`gate --against` and the dates of failures need it"
    if shutil.which("git") is None:
        return Diagnosis.note("git", f"not installed: {need}")
    if find_head(root, environment) is None:
        return Diagnosis.note("git", f"the project is not in a repository with a commit: {need}")
    return Diagnosis.ok("git", "the project is in a repository")


def examine_project(root: Path) -> tuple[Manifest | None, Diagnosis]:
    """Load the manifests.

    Returns:
        The manifests, or None if they are invalid, and the diagnosis.
    """
    if not _has_project(root):
        message = (
            "none yet: `exporter record -- python export.py` writes entries from your script, "
            "`exporter add` from a class; in another folder, pass that of the project with --root"
        )
        return None, Diagnosis.note("manifests", message)
    try:
        require_own_checkout(root)
        manifest = load_project(root, keep_invalid=True)
    except ExporterError as error:
        return None, _diagnose_problems([str(problem) for problem in error.problems])
    problems = [str(problem) for problem in manifest.problems]
    problems += [text for spec in manifest.models for text in spec.problems]
    if problems:
        return manifest, _diagnose_problems(problems)
    models = len(manifest.models)
    if not models:
        message = f"{join_names(manifest.project.manifests)} declares no model"
        return manifest, Diagnosis.note("manifests", message)
    cells = len(list_all_cells(manifest))
    message = f"{pluralize(models, 'model')}, {pluralize(cells, 'cell')}"
    return manifest, Diagnosis.ok("manifests", message)


def _has_project(root: Path) -> bool:
    path = root / SETTINGS_FILE
    content = read_toml_table(path) if path.exists() else TomlTable()
    has_settings = content.problem or find_settings(content.table) != (None, ())
    return bool(has_settings) or (root / "manifests").exists()


def _diagnose_problems(problems: Sequence[str]) -> Diagnosis:
    first, more = problems[0], len(problems) - 1
    rest = f" (and {more} more: `exporter check` lists them)" if more else ""
    return Diagnosis.problem("manifests", f"{first}{rest}")


def examine_environments(project: Project) -> Iterator[Diagnosis]:
    """List the environments of runtimes and toolchains, and whether they were created."""
    sizes = {
        each.key: each.measure_size() for each in list_environments(project.environments_folder)
    }
    for environment in project.environments:
        located = locate_environment(project, environment)
        size = sizes.get(environment.definition.key, 0)
        if located.interpreter:
            message = f"{located.runtime_versions} ({format_bytes(size)})"
        else:
            message = f"{', '.join(environment.requirements)}: not created yet"
        yield Diagnosis.ok(f"environment {environment.name}", message)
    for name, definition in project.job_environments.items():
        size = sizes.get(definition.key, 0)
        state = format_bytes(size) if size else "not created yet"
        message = f"{', '.join(definition.requirements)} ({state})"
        yield Diagnosis.ok(f"toolchain {name}", message)
    if garbage := list_garbage(project):
        message = f"{pluralize(len(garbage), 'environment')} not declared; `exporter gc` removes it"
        yield Diagnosis.note("environments", message)


def examine_devices(manifest: Manifest, environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Run a small file on each device of the manifests."""
    if not manifest.models:
        return
    cells = Counter(p.cell.device for p in make_plan(manifest).cells if not p.skip)
    project = locate_environments(manifest.project)
    for name, count in cells.items():
        device = project.find_device(name)
        if device.job_environment:
            message = f"runs with the packages of the toolchain {device.name.suffix}"
            yield Diagnosis.ok(f"device {name}", message)
            continue
        if device.environment and not device.environment.interpreter:
            message = f"the next export creates its environment, {device.environment.name}"
            yield Diagnosis.ok(f"device {name}", message)
            continue
        function, arguments = f"{_CHILD}:probe_device", {"device": device}
        try:
            provider = call_in_child(function, arguments, str, environment, seconds=_TIMEOUT)
            yield Diagnosis.ok(f"device {name}", f"{provider} works")
        except (ChildFailure, ExporterError) as error:
            problem = f"its process {error}" if isinstance(error, ChildFailure) else str(error)
            unavailable = f"{pluralize(count, 'cell')} unavailable: {problem}"
            yield Diagnosis.note(f"device {name}", unavailable)


def examine_build(manifest: Manifest) -> Iterator[Diagnosis]:
    """Compare each result with the project and each artifact with its record."""
    build_folder = BuildFolder.from_project(manifest.project)
    if build_folder.path.is_symlink():
        message = (
            f"{build_folder.path.name} is a symlink: build output is never written through one"
        )
        yield Diagnosis.problem("build", message)
    elif not build_folder.path.is_dir():
        yield Diagnosis.ok("build", f"there is no {manifest.project.build} yet")
    else:
        if paths := list(list_inaccessible(build_folder.path)):
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            message = f"{paths[0]}{more}: cannot be read or changed{describe_owner(paths[0])}"
            yield Diagnosis.problem("build", message)
        if manifest.models:
            yield from _examine_records(manifest, build_folder)
        if build_folder.results.exists():
            yield _compare_tools(build_folder.results)


def examine_store(store: Store | None) -> Diagnosis:
    """Return the path and the size of the store, and whether it can be written."""
    if store is None:
        return Diagnosis.note("store", "off: results of other branches are built again")
    summary = f"{store.path}, at most {format_byte_limit(store.limits.size)}"
    parent = next(path for path in (store.path, *store.path.parents) if path.exists())
    if not parent.is_dir():
        message = f"{store.path}: {parent} is not a folder, so no result is stored"
        return Diagnosis.problem("store", message)
    if not (store.is_read_only or os.access(parent, os.W_OK)):
        return Diagnosis.note("store", f"{summary}: read-only, because it cannot be written")
    if not store.path.exists():
        return Diagnosis.ok("store", f"{summary}: empty")
    try:
        count, size = store.measure()
    except OSError as error:
        message = f"{store.path}: cannot be read: {error.strerror}; no result is restored"
        return Diagnosis.problem("store", message)
    summary += f": {format_bytes(size)}, {count} results"
    return Diagnosis.ok("store", f"{summary}, read-only" if store.is_read_only else summary)


def examine_remote(store: Store | None) -> Iterator[Diagnosis]:
    """Yield whether the remote store can be read, if there is one."""
    if store and store.remote:
        remote = store.remote
        if problem := remote.test_access():
            yield Diagnosis.problem("remote", f"{remote.label}: cannot be read: {problem}")
        else:
            mode = ", read-only" if remote.is_read_only else ""
            trust = "signed entries only" if remote.has_key else "entries are not signed"
            yield Diagnosis.ok("remote", f"{remote.label}: can be read; {trust}{mode}")


def _examine_records(manifest: Manifest, build_folder: BuildFolder) -> Iterator[Diagnosis]:
    stored, validator = StoredRecords(build_folder), RecordValidator(manifest)
    verifier = ArtifactVerifier(build_folder.path)
    damaged: dict[CellId, str] = {}
    stale: dict[CellId, str] = {}
    valid: dict[CellId, Record] = {}
    missing = 0
    cells = [planned.cell for planned in order_links_first(make_plan(manifest).to_run)]
    for cell in cells:
        record = stored.get(cell)
        if record is None and stored.is_damaged(cell):
            damaged[cell] = stored.find_missing_reason(cell)
        elif record is None:
            missing += 1
        elif reason := validator.find_staleness_reason(record):
            stale[cell] = reason
        elif reason := verifier.find_record_problem(record):
            damaged[cell] = reason
        elif reason := find_lost_proof(record, manifest, valid.get):
            stale[cell] = reason
        else:
            valid[cell] = record
    message = f"{len(valid)} of {len(cells)} results are up to date"
    message += f"; {missing} do not exist yet" if missing else ""
    yield (Diagnosis.ok if len(valid) == len(cells) else Diagnosis.note)("build", message)
    if stale:
        yield Diagnosis.note("build", f"stale: {len(stale)}: {_format_most_common(stale)}")
    if damaged:
        count = f"damaged, rebuilt by the next export: {len(damaged)}"
        yield Diagnosis.problem("build", f"{count}: {_format_most_common(damaged)}")


def _format_most_common(reasons: dict[CellId, str]) -> str:
    [(common, count)] = Counter(reasons.values()).most_common(1)
    cell = next(cell for cell, reason in reasons.items() if reason == common)
    others = len(reasons) - count
    return f"{common} ({cell})" + (f", and {others} for other reasons" if others else "")


def _compare_tools(path: Path) -> Diagnosis:
    try:
        run = read_run(path)
    except ExporterError as error:
        return Diagnosis.problem("results", str(error.problems[0]))
    installed = read_tool_versions()
    changes = [
        f"{name} {before} -> {installed[name]}"
        for name, before in run.tools.items()
        if installed.get(name, before) != before
    ]
    if changes:
        return Diagnosis.note("results", f"built with other tools: {', '.join(changes)}")
    return Diagnosis.ok("results", "built with the installed tools")
