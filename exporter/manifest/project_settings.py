"""`[tool.exporter]` of pyproject.toml in, the `Project` and the lowest layer of settings out.

No pyproject.toml, or one without that table, gives the defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from operator import getitem
from pathlib import Path

from exporter.core.errors import Problem, suggest_nearest
from exporter.core.toml_table import SETTINGS_FILE, SETTINGS_KEYS, find_settings
from exporter.manifest.reading.layers import Layer
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.toml_file import TomlFile, read_toml
from exporter.manifest.reading.validation import validate
from exporter.manifest.rules.devices import BUILT_IN_DEVICES, format_unknown_device, resolve_devices
from exporter.manifest.schema.entry import Settings
from exporter.manifest.schema.settings import GateTable, ProjectTable
from exporter.manifest.schema.tables import list_explicit_values
from exporter.manifest.spec.gate import Gate, GatePolicy, ModelPolicy
from exporter.manifest.spec.model import Device, Project
from exporter.manifest.spec.store import DEFAULT_STORE_AGE, DEFAULT_STORE_SIZE
from exporter.manifest.syntax.message_format import KeyPath, format_value, quote

_PATH: KeyPath = SETTINGS_KEYS
_FOLDERS = ("manifests", "build", "reports", "templates")
#: Keys of the project that are settings of its models.
_FOR_MODELS = ("opsets", "tolerance", "timeout", "memory", "thorough")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The project, and what it says for models that say nothing."""

    project: Project
    layer: Layer | None
    file: TomlFile | None = None


def read_project(root: Path, report: ProblemCollector) -> ProjectSettings:
    """Reads the settings of the project at `root`."""
    file = (
        read_toml(root / SETTINGS_FILE, SETTINGS_FILE) if (root / SETTINGS_FILE).exists() else None
    )
    if isinstance(file, Problem):
        report.add(file)
    if not isinstance(file, TomlFile) or not _has_settings(file, report):
        return ProjectSettings(project=_project(root, ProjectTable(), BUILT_IN_DEVICES), layer=None)
    table, dropped = validate(ProjectTable, file, _PATH, report)
    tables = table.devices if isinstance(table.devices, dict) else {}
    devices = resolve_devices(file, (*_PATH, "devices"), tables, report)
    _check_folders(file, table, report)
    values = {
        key: value for key, value in list_explicit_values(table).items() if key in _FOR_MODELS
    }
    values["devices"] = _default_devices(file, table, devices, report)
    layer = Layer(
        file=file,
        path=_PATH,
        table=Settings.model_construct(set(values), **values),
        broken=frozenset(str(unit[0]) for unit in dropped).intersection(Settings.model_fields),
    )
    return ProjectSettings(project=_project(root, table, devices), layer=layer, file=file)


def check_gate(found: ProjectSettings, models: Collection[str], report: ProblemCollector) -> None:
    """A policy for models that do not exist is a slip of the hand, and holds for nothing."""
    if found.file is None:
        return
    for each in found.project.gate.models:
        if not any(fnmatchcase(model, each.models) for model in models):
            message = f"no model matches{suggest_nearest(each.models, models)}"
            report.add(found.file.problem((*_PATH, "gate", "models", each.models), message))


def _has_settings(file: TomlFile, report: ProblemCollector) -> bool:
    table, keys = find_settings(file.table)
    if keys:
        value = reduce(getitem, keys, file.table)
        report.add(file.problem(keys, f"expected a table, got {format_value(value)}"))
    return table is not None


def _project(root: Path, table: ProjectTable, devices: Mapping[str, Device]) -> Project:
    return Project(
        root=str(root),
        manifests=table.manifests,
        build=table.build,
        reports=table.reports,
        templates=table.templates,
        store=table.store,
        store_size=DEFAULT_STORE_SIZE if table.store_size is None else table.store_size,
        store_age=DEFAULT_STORE_AGE if table.store_age is None else table.store_age,
        devices=tuple(devices.values()),
        jobs=table.jobs,
        gate=_gate(table.gate),
        style=table.style,
        command=table.command,
    )


def _gate(table: GateTable) -> Gate:
    policy = {
        key: value
        for key, value in list_explicit_values(table).items()
        if key in GatePolicy.model_fields
    }
    models = (
        ModelPolicy(models=name, values=list_explicit_values(each))
        for name, each in table.models.items()
    )
    return Gate(policy=GatePolicy(**policy), models=tuple(models))


def _default_devices(
    file: TomlFile, table: ProjectTable, devices: Mapping[str, Device], report: ProblemCollector
) -> tuple[str, ...]:
    """The devices of models that name none, from the list under either key."""
    listed = isinstance(table.devices, tuple) and "devices" in table.model_fields_set
    if listed and "default_devices" in table.model_fields_set:
        message = "`devices` lists the default devices already"
        report.add(file.problem((*_PATH, "default_devices"), message))
    key = "devices" if listed else "default_devices"
    names: tuple[str, ...] = getattr(table, key)
    for index, name in enumerate(names):
        if name not in devices:
            problem = format_unknown_device(name, devices)
            report.add(file.problem((*_PATH, key, index), problem))
        elif name in names[:index]:
            report.add(file.problem((*_PATH, key, index), f"{quote(name)} is named twice"))
    return names


def _check_folders(file: TomlFile, table: ProjectTable, report: ProblemCollector) -> None:
    """What is written must not lie in what is read, nor inside the other."""
    for key in ("build", "reports"):
        for other in _FOLDERS:
            inner, outer = getattr(table, key), getattr(table, other)
            if key != other and f"{inner}/".startswith(f"{outer}/"):
                message = f"{quote(inner)} lies in the folder of `{other}`, {quote(outer)}"
                said_by = key if key in table.model_fields_set else other
                report.add(file.problem((*_PATH, said_by), message))
    # What is cleared away, read or in git is no place for what is kept.
    for other in _FOLDERS:
        folder = getattr(table, other)
        if f"{table.store}/".startswith(f"{folder}/"):
            message = f"{quote(table.store)} lies in the folder of `{other}`, {quote(folder)}"
            report.add(file.problem((*_PATH, "store"), message))
