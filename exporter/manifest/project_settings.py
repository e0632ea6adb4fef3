"""Read `[tool.exporter]` of pyproject.toml."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from exporter.core.errors import Problem, suggest_nearest
from exporter.core.toml_table import SETTINGS_FILE, SETTINGS_KEYS, find_settings
from exporter.manifest.resolved.project import (
    DEFAULT_STORE_AGE,
    DEFAULT_STORE_SIZE,
    Device,
    EngineSettings,
    Gate,
    GatePolicy,
    ModelPolicy,
    Project,
    RuntimeEnvironment,
    Toolchain,
)
from exporter.manifest.rules.devices import (
    BUILT_IN_DEVICES,
    format_unknown_device,
    resolve_devices,
    resolve_environments,
    resolve_toolchains,
)
from exporter.manifest.rules.layers import Layer
from exporter.manifest.rules.validation import validate
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.settings import ProjectTable
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile, read_toml
from exporter.manifest.syntax.values import KeyPath, format_value, quote

_PATH: KeyPath = SETTINGS_KEYS
_FOLDERS = ("manifests", "build", "reports", "templates")
#: Keys that the project takes without a change.
_UNCHANGED_KEYS = (
    *_FOLDERS, "store", "store_timeout", "jobs", "sandbox", "style", "timings", "environment",
    "command",
)  # fmt: skip
#: Keys of the project that are defaults of its models.
_MODEL_KEYS = ("opsets", "tolerance", "timeout", "memory", "thorough")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The project, and the defaults of its models."""

    project: Project
    layer: Layer | None
    file: TomlFile | None = None


def read_project(root: Path, report: ProblemCollector) -> ProjectSettings:
    """Read the settings of the project at `root`."""
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
    if not isinstance(file, TomlFile) or table is None:
        project = _build_project(root, ProjectTable(), BUILT_IN_DEVICES)
        return ProjectSettings(project=project, layer=None)
    settings, removed = validate(ProjectTable, file, _PATH, report)
    tables = settings.devices if isinstance(settings.devices, dict) else {}
    environments = resolve_environments(
        file, (*_PATH, "environments"), settings.environments, report
    )
    path = (*_PATH, "devices")
    devices = resolve_devices(file, path, tables, environments, root, report)
    declared = table.get("toolchains")
    toolchains = resolve_toolchains(
        file,
        (*_PATH, "toolchains"),
        declared if isinstance(declared, dict) else (),
        settings.toolchains,
        report,
    )
    _check_folders(file, settings, report)
    _check_engine(file, settings, report)
    for name in settings.evidence.keys() - devices.keys():
        problem = format_unknown_device(name, devices)
        report.add(file.build_problem((*_PATH, "evidence", name), problem))
    project = _build_project(
        root, settings, devices, tuple(environments.values()), toolchains, file
    )
    values = {key: value for key, value in settings.list_explicit().items() if key in _MODEL_KEYS}
    values["devices"] = _resolve_default_devices(file, settings, project.device_names, report)
    layer = Layer(
        file=file,
        path=_PATH,
        table=Settings.model_construct(set(values), **values),
        broken={
            str(key[0]): problems
            for key, problems in removed.items()
            if key[0] in Settings.model_fields
        },
    )
    return ProjectSettings(project=project, layer=layer, file=file)


def check_gate(
    settings: ProjectSettings, models: Collection[str], report: ProblemCollector
) -> None:
    """Report gate policies that match no model, which are mistakes."""
    if settings.file is None:
        return
    for policy in settings.project.gate.models:
        if not any(fnmatchcase(model, policy.models) for model in models):
            message = f"no model matches{suggest_nearest(policy.models, models)}"
            path = (*_PATH, "gate", "models", policy.models)
            report.add(settings.file.build_problem(path, message))


def _build_project(
    root: Path,
    table: ProjectTable,
    devices: Mapping[str, Device],
    environments: tuple[RuntimeEnvironment, ...] = (),
    toolchains: tuple[Toolchain, ...] = (),
    file: TomlFile | None = None,
) -> Project:
    gate_table = table.gate
    policy = {
        key: value
        for key, value in gate_table.list_explicit().items()
        if key in GatePolicy.model_fields
    }
    policies = tuple(
        ModelPolicy(models=name, values=each.list_explicit())
        for name, each in gate_table.models.items()
    )
    path = (*_PATH, "gate")
    lines = {
        ".".join(map(str, key[len(path) :])): line
        for key, line in (file.lines if file else {}).items()
        if key[: len(path)] == path
    }
    return Project(
        root=str(root),
        store_size=DEFAULT_STORE_SIZE if table.store_size is None else table.store_size,
        store_age=DEFAULT_STORE_AGE if table.store_age is None else table.store_age,
        store_key=table.store_key or "",
        store_lines={
            key: file.lines[(*_PATH, key)]
            for key in ("store", "store_key")
            if file and (*_PATH, key) in file.lines
        },
        devices=tuple(devices.values()),
        environments=environments,
        toolchains=toolchains,
        engine=_build_engine(table, file),
        evidence={name: each.age for name, each in table.evidence.items()},
        gate=Gate(policy=GatePolicy(**policy), models=policies, lines=lines),
        **{key: getattr(table, key) for key in _UNCHANGED_KEYS},
    )


def _build_engine(table: ProjectTable, file: TomlFile | None) -> EngineSettings:
    path = (*_PATH, "engine")
    keys = [key for key in EngineSettings.model_fields if file and (*path, key) in file.lines]
    return EngineSettings(
        kind=table.engine.kind,
        scheduler=table.engine.scheduler or "",
        cluster=table.engine.cluster or "",
        workers=table.engine.workers,
        lines={key: file.lines[(*path, key)] for key in keys} if file else {},
    )


def _check_engine(file: TomlFile, table: ProjectTable, report: ProblemCollector) -> None:
    """Report keys that have no effect together."""
    engine, path = table.engine, (*_PATH, "engine")
    if engine.scheduler and engine.cluster:
        message = "`scheduler` selects another cluster; remove one of the two"
        report.add(file.build_problem((*path, "cluster"), message))
    if engine.workers and (engine.scheduler or engine.cluster):
        message = "only a cluster on this machine has a number of workers; remove it"
        report.add(file.build_problem((*path, "workers"), message))


def _resolve_default_devices(
    file: TomlFile, table: ProjectTable, devices: Collection[str], report: ProblemCollector
) -> tuple[str, ...]:
    """Return the devices of models without `devices`, from the list under either key."""
    is_list = isinstance(table.devices, tuple) and "devices" in table.model_fields_set
    if is_list and "default_devices" in table.model_fields_set:
        message = "`devices` already lists the default devices; remove one of the two"
        report.add(file.build_problem((*_PATH, "default_devices"), message))
    key = "devices" if is_list else "default_devices"
    names: tuple[str, ...] = getattr(table, key)
    for index, name in enumerate(names):
        if name not in devices:
            problem = format_unknown_device(name, devices)
            report.add(file.build_problem((*_PATH, key, index), problem))
        elif name in names[:index]:
            message = f"{quote(name)} is listed twice"
            report.add(file.build_problem((*_PATH, key, index), message))
    return names


def _check_folders(file: TomlFile, table: ProjectTable, report: ProblemCollector) -> None:
    """Report folders for output that are inside a folder for input or inside each other."""
    for key in ("build", "reports"):
        for other in _FOLDERS:
            inner, outer = getattr(table, key), getattr(table, other)
            if key != other and f"{inner}/".startswith(f"{outer}/"):
                message = f"{quote(inner)} is inside the folder of `{other}`, {quote(outer)}"
                explicit_key = key if key in table.model_fields_set else other
                report.add(file.build_problem((*_PATH, explicit_key), message))
    # The store must survive a cleanup of these folders, and must not be read or committed.
    for other in _FOLDERS:
        folder = getattr(table, other)
        if f"{table.store}/".startswith(f"{folder}/"):
            message = f"{quote(table.store)} is inside the folder of `{other}`, {quote(folder)}"
            report.add(file.build_problem((*_PATH, "store"), message))
