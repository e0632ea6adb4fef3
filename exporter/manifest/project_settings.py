"""Read `[tool.exporter]` of pyproject.toml: folders, devices and environments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from importlib import metadata
from importlib.util import find_spec
from operator import getitem
from pathlib import Path
from typing import Any

from exporter.core.device_name import SEPARATOR, DeviceName
from exporter.core.errors import ExitCode, ExporterError, Problem, suggest_nearest
from exporter.core.files import leads_out_of_checkout
from exporter.core.toml_table import SETTINGS_FILE, SETTINGS_KEYS, find_settings
from exporter.manifest.build_setting import find_build_problem
from exporter.manifest.resolved.keys import (
    DEFAULT_STORE_SIZE,
)
from exporter.manifest.resolved.policy import (
    DEFAULT_GATE,
)
from exporter.manifest.resolved.project import (
    Device,
    Project,
)
from exporter.manifest.rules.gate_settings import check_models, resolve_gate
from exporter.manifest.rules.layers import EffectiveSettings, Layer
from exporter.manifest.rules.project_devices import resolve_devices
from exporter.manifest.rules.settings_file import ALIASES, BUILT_IN_DEVICES, SettingsFile
from exporter.manifest.rules.validation import validate, validate_manifest
from exporter.manifest.schema.settings import ProjectTable
from exporter.manifest.syntax.releases import Release
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile, read_toml
from exporter.manifest.syntax.values import (
    find_lowest_release,
    format_value,
    is_in_range,
    join_words,
    quote,
)

_DISTRIBUTION = "onnx-exporter-matrix"


def list_pinned_devices(devices: Iterable[Device]) -> dict[str, Release]:
    """Return the devices of ONNX Runtime whose environment pins a release, with the release."""
    return {device.name: device.pinned_release for device in devices if device.pinned_release}


def add_consumer_devices(entry: EffectiveSettings) -> tuple[str, ...]:
    """Return the devices of an entry with those that run the promised release."""
    names, pinned = entry.settings.devices, entry.project.pinned
    consumers = entry.settings.consumers if entry.has_valid("consumers") else ()
    release = find_lowest_release(consumers)
    return (*names, *(name for name in pinned if name not in names and pinned[name] == release))


def find_device_problems(
    names: Sequence[str], devices: Collection[str]
) -> Iterator[tuple[int, str]]:
    """Yield the index of each unknown or repeated device, with the message."""
    for index, name in enumerate(names):
        if name not in devices:
            yield index, format_unknown_device(name, devices)
        elif name in names[:index]:
            yield index, f"{quote(name)} is listed twice"


def format_unknown_device(name: str, devices: Collection[str]) -> str:
    """Return the message for a device `cpu` or `cpu@SUFFIX` that does not exist."""
    full = DeviceName(name)
    base, suffix = full.base, full.suffix
    bases = {each for each in devices if SEPARATOR not in each}
    if SEPARATOR in name and base in bases:
        suffixes = {DeviceName(each).suffix for each in devices} - {""}
        hint = suggest_nearest(suffix, suffixes)
        hint = hint or f"; add [tool.exporter.toolchains.{suffix or 'NAME'}] with `requirements`"
        return f"{quote(name)}: no toolchain has the name {quote(suffix)}{hint}"
    # Only letters of `npu` are similar to `cpu`, so other short names get no suggestion.
    near = suggest_nearest(base, bases) if len(base) > len("cpu") else ""
    alias = ALIASES.get(base.lower())
    hint = f"; did you mean '{alias}'?" if alias in bases else near
    hint = hint or f"; use {join_words(sorted(bases), 'or')}"
    return f"no device has the name {quote(base)}{hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The project, and the defaults of its models."""

    project: Project
    layer: Layer | None
    file: TomlFile | None = None
    package_layer: Layer | None = None
    """The defaults of a package that `extends` names."""
    package_file: Path | None = None


def read_project(root: Path, report: ProblemCollector) -> ProjectSettings:
    file = (
        read_toml(root / SETTINGS_FILE, SETTINGS_FILE) if (root / SETTINGS_FILE).exists() else None
    )
    if isinstance(file, Problem):
        report.add(file)
    table: dict[str, Any] | None = None
    if isinstance(file, TomlFile):
        table, keys = find_settings(file.table)
        if keys:
            value = format_value(reduce(getitem, keys, file.table))
            report.add(file.build_problem(keys, f"expected a table, got {value}"))
    built_in: dict[str, Any] = {"devices": (*BUILT_IN_DEVICES.values(),), "environments": ()}
    if not isinstance(file, TomlFile) or table is None:
        project = _build_project(root, ProjectTable(), None, gate=DEFAULT_GATE, **built_in)
        _require_own_folders(project)
        return ProjectSettings(project=project, layer=None)
    settings, removed = validate(ProjectTable, file, SETTINGS_KEYS, report)
    settings_file = SettingsFile(file, settings, report)
    resolved = built_in
    if table.keys() & {"devices", "environments", "toolchains"}:
        resolved = resolve_devices(settings_file, table.get("toolchains"), root)
    _check_folders(settings_file)
    gate = resolve_gate(settings_file) if "gate" in table else DEFAULT_GATE
    devices = {device.name for device in resolved["devices"]}
    for name in settings.evidence.keys() - devices:
        settings_file.add_problem(("evidence", name), format_unknown_device(name, devices))
    project = _build_project(root, settings, file, gate=gate, **resolved)
    _require_own_folders(project)
    for index, message in find_device_problems(settings.defaults.devices, project.device_names):
        settings_file.add_problem(("defaults", "devices", index), message)
    layer = Layer(
        file=file,
        path=(*SETTINGS_KEYS, "defaults"),
        table=settings.defaults,
        broken={str(key[1]): each for key, each in removed.items() if key[:-1] == ("defaults",)},
    )
    package_file, package_layer = _read_package_defaults(settings_file)
    is_set = "build" in settings.model_fields_set
    if is_set and (problem := find_build_problem(settings.build, root)):
        message = f"{quote(settings.build)} {problem}; name a folder of its own"
        settings_file.add_problem(("build",), message)
    return ProjectSettings(
        project=project,
        layer=layer,
        file=file,
        package_layer=package_layer,
        package_file=package_file,
    )


def _read_package_defaults(settings: SettingsFile) -> tuple[Path | None, Layer | None]:
    """Return the file of `extends` and its `[defaults]`; report a problem with it."""
    value = settings.table.extends
    if not value:
        return None, None
    package, _, name = value.partition(":")
    spec = None
    with suppress(ImportError, ValueError):
        spec = find_spec(package)
    folders = [Path(each) for each in spec.submodule_search_locations or ()] if spec else []
    path = next((each / name for each in folders if (each / name).is_file()), None)
    if path is None:
        problem = f"the package {quote(package)} has no file {quote(name)}"
        if not folders:
            fix = "install the distribution that has it"
            problem = f"the package {quote(package)} is not installed; {fix}"
        settings.add_problem(("extends",), problem)
        return None, None
    file = read_toml(path, value)
    if isinstance(file, Problem):
        settings.report.add(file)
        return path, None
    manifest = validate_manifest(file, settings.report)
    if manifest.entries:
        message = "a file of defaults has no models; write them into the project"
        settings.report.add(file.build_problem(("models",), message))
    return path, manifest.defaults


def check_version(settings: ProjectSettings, report: ProblemCollector) -> None:
    """Report that the project requires another version of this program."""
    required = settings.project.requires
    if not required or not settings.file:
        return
    installed = metadata.version(_DISTRIBUTION)
    if not is_in_range(installed, required):
        message = (
            f"the project requires version {required} of this program, and {installed} is "
            f"installed; run `pip install '{_DISTRIBUTION}{required}'`, or "
            "install its tag from the repository"
        )
        report.add(settings.file.build_problem((*SETTINGS_KEYS, "requires"), message))


def check_gate(
    settings: ProjectSettings, models: Collection[str], report: ProblemCollector
) -> None:
    """Report gate policies that match no model, which are mistakes."""
    if settings.file and settings.project.gate.models:
        check_models(settings.file, settings.project.gate, models, report)


def _build_project(
    root: Path, table: ProjectTable, file: TomlFile | None, **resolved: Any
) -> Project:
    """Return the project; `resolved` are its fields in another form than in the table."""
    metadata = file.table.get("project") if file else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return Project.from_fields(
        table,
        root=str(root),
        name=name if isinstance(name, str) else "",
        store_size=DEFAULT_STORE_SIZE if table.store_size is None else table.store_size,
        lines={
            key: file.lines[path]
            for key in ("store", "engine")
            if file and (path := (*SETTINGS_KEYS, key)) in file.lines
        },
        evidence={name: each.age for name, each in table.evidence.items()},
        elsewhere=tuple(name for name, each in table.evidence.items() if each.elsewhere),
        **resolved,
    )


def _require_own_folders(project: Project) -> None:
    """Raise an error if a folder is a link out of the repository, before it is searched.

    Commands read branches of other people. `templates -> /` has all files of the machine, and a
    report would be written to another folder.

    Raises:
        ExporterError: MANIFEST.
    """
    baseline = f"{project.reports}/baseline"  # `exporter baseline` writes it and removes files
    for name in (*project.manifests, project.reports, baseline, project.templates):
        if leads_out_of_checkout(Path(project.root) / name):
            problem = "is a symlink out of the repository; copy the folder"
            raise ExporterError(ExitCode.MANIFEST, f"{name}: {problem}")


def _check_folders(settings_file: SettingsFile) -> None:
    """Report folders for output that are inside a folder for input or inside each other."""
    table = settings_file.table
    folders = [(key, getattr(table, key)) for key in ("build", "reports", "templates")]
    folders += [("manifests", each) for each in table.manifests]
    for key in ("build", "reports"):
        for other, outer in folders:
            inner = getattr(table, key)
            if key != other and f"{inner}/".startswith(f"{outer}/"):
                message = f"{quote(inner)} is inside the folder of `{other}`, {quote(outer)}"
                settings_file.add_problem(
                    (key if key in table.model_fields_set else other,), message
                )
    # The store must survive a cleanup of these folders, and must not be read or committed.
    for other, folder in folders:
        if f"{table.store}/".startswith(f"{folder}/"):
            message = f"{quote(table.store)} is inside the folder of `{other}`, {quote(folder)}"
            settings_file.add_problem(("store",), message)
