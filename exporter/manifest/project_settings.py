"""Read `[tool.exporter]` of pyproject.toml: folders, devices and environments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from itertools import chain
from operator import getitem
from pathlib import Path
from typing import Any

from exporter.core.device_name import CURRENT, SEPARATOR, DeviceName
from exporter.core.errors import Problem, suggest_name, suggest_nearest
from exporter.core.toml_table import SETTINGS_FILE, SETTINGS_KEYS, find_settings
from exporter.environments import NPM, EnvironmentDefinition
from exporter.manifest.resolved.keys import (
    DEFAULT_STORE_SIZE,
)
from exporter.manifest.resolved.policy import (
    ACTIONS,
    DEFAULT_GATE,
    FINDINGS,
    Action,
    FindingKind,
    Gate,
    GatePolicy,
    ModelPolicy,
)
from exporter.manifest.resolved.project import (
    Device,
    Project,
    RuntimeEnvironment,
)
from exporter.manifest.rules.layers import EffectiveSettings, Layer
from exporter.manifest.rules.validation import validate
from exporter.manifest.schema.entry import ID_PATTERN
from exporter.manifest.schema.settings import DeviceTable, ModelGateTable, ProjectTable
from exporter.manifest.syntax.fields import FLOATS
from exporter.manifest.syntax.releases import Release
from exporter.manifest.syntax.runtimes import PLUGIN, RUNTIMES
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile, read_toml
from exporter.manifest.syntax.values import (
    KeyPath,
    find_lowest_release,
    format_value,
    join_words,
    quote,
)

_PROVIDERS = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    "coreml": ("CoreMLExecutionProvider",),
    "directml": ("DmlExecutionProvider",),
}
#: Other common names of the built-in devices.
_ALIASES = {"gpu": "cuda", "trt": "tensorrt", "ort": "cpu", "dml": "directml", "mps": "coreml"}
#: The attributes of ONNX Runtime's `SessionOptions` that may differ between devices.
_SESSION_ATTRIBUTES = (
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
    "enable_mem_reuse",
    "graph_optimization_level",
    "inter_op_num_threads",
    "intra_op_num_threads",
    "use_deterministic_compute",
)
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")
BUILT_IN_DEVICES: Mapping[str, Device] = {
    **{
        name: Device(name=DeviceName(name), runtime="onnxruntime", providers=providers)
        for name, providers in _PROVIDERS.items()
    },
    "openvino": Device(name=DeviceName("openvino"), runtime="openvino"),
    "reference": Device(name=DeviceName("reference"), runtime="reference"),
}


@dataclass(frozen=True, slots=True)
class _SettingsFile:
    """`[tool.exporter]` of a file, and the problems with it."""

    file: TomlFile
    table: ProjectTable
    report: ProblemCollector

    def add_problem(self, path: KeyPath, message: str) -> None:
        self.report.add(self.file.build_problem((*_PATH, *path), message))

    def find_line(self, path: KeyPath) -> int | None:
        return self.file.lines.get((*_PATH, *path))

    def check_name(self, path: KeyPath, reserved: Collection[str] = (), other: str = "") -> None:
        """Report a name of a table with other characters; the name is the end of the path."""
        name = str(path[-1])
        if not re.fullmatch(ID_PATTERN, name) or name in reserved:
            form = f"a name of a-z, 0-9, '_', '.' and '-'{other}"
            self.add_problem(path, f"expected {form}, got {quote(name)}")


def _resolve_environments(source: _SettingsFile) -> dict[str, RuntimeEnvironment]:
    environments = {}
    for name, table in source.table.environments.items():
        path = ("environments", name)
        source.check_name(path)
        prefixes = {each.startswith(NPM) for each in table.requirements}
        if len(prefixes) > 1 or (table.python and True in prefixes):
            message = "packages of npm need an environment of their own, without `python`"
            source.add_problem((*path, "requirements"), message)
        environments[name] = RuntimeEnvironment(
            name=name,
            requirements=table.requirements,
            python=table.python or "",
            location=f"{source.file.name}:{source.find_line(path) or 1}",
        )
    return environments


def _resolve_job_environments(
    source: _SettingsFile, declared: Iterable[str]
) -> dict[str, EnvironmentDefinition]:
    """Return the environments of devices with a suffix; one without requirements is invalid."""
    environments = {}
    tables = source.table.toolchains
    for name in declared:
        path = ("toolchains", name)
        source.check_name(path)
        if name == CURRENT:
            message = f"{quote(name)} is the name of the project's own packages; use another name"
            source.add_problem(path, message)
        requirements = tables[name].requirements if name in tables else ()
        environments[name] = EnvironmentDefinition(requirements=requirements, adds_to_current=True)
    return environments


def _resolve_devices(
    source: _SettingsFile, environments: Mapping[str, RuntimeEnvironment], root: Path
) -> dict[str, Device]:
    """Return the built-in devices and those of the settings, which may replace them."""
    devices = dict(BUILT_IN_DEVICES)
    for name, table in source.table.devices.items():
        path = ("devices", name)
        source.check_name(path, FLOATS, " that is not a dtype")
        for key, message in chain(
            _find_problems(table), _find_environment_problems(table, environments)
        ):
            source.add_problem((*path, *key.split("/")) if key else path, message)
        library = table.provider_library
        if library and not (_MODULE.fullmatch(library) and ":" in library):
            library = str(root / library)  # else the name of a function
        devices[name] = Device.from_fields(
            table,
            name=DeviceName(name),
            environment=environments.get(table.environment or ""),
            provider_options={
                provider: {key: _format_option(value) for key, value in options.items()}
                for provider, options in table.provider_options.items()
            },
            provider_library=library,
        )
    return devices


def _find_problems(table: DeviceTable) -> Iterator[tuple[str, str]]:
    """Yield keys that are missing or not valid for the runtime; "" stands for the table."""
    row = RUNTIMES.get(table.runtime, PLUGIN)
    key, _, example = row.required.partition(" = ")
    if key and not getattr(table, key):
        yield "", f"needs `{key}`, such as {example}"
    for key in dict.fromkeys(key for each in RUNTIMES.values() for key in each.keys):
        if getattr(table, key) and key not in row.keys:
            names = join_words(name for name, each in RUNTIMES.items() if key in each.keys)
            fix = "use `providers`" if key == "device" and "providers" in row.keys else "remove it"
            yield key, f"is only valid for {names}, not for {table.runtime}; {fix}"
    if table.module and "module" in row.keys and not _MODULE.fullmatch(table.module):
        message = 'expected "package.module" or "package.module:Class"'
        yield "module", f"{message}, got {quote(table.module)}"
    if "provider_options" in row.keys:
        yield from _find_option_problems(table)


def _find_environment_problems(
    table: DeviceTable, environments: Mapping[str, RuntimeEnvironment]
) -> Iterator[tuple[str, str]]:
    name = table.environment
    needs_node = RUNTIMES.get(table.runtime, PLUGIN).needs_node
    if name is None:
        if table.variables:
            yield "variables", "is only valid with `environment`: workers share their variables"
        if needs_node:
            yield "", "needs `environment`; docs/devices.md has its tables"
        return
    if name in environments:
        has_node = bool(environments[name].definition.npm_packages)
        if has_node is not needs_node:
            kinds = ("of npm" if needs_node else "of pip", "npm" if has_node else "pip")
            message = f"the runtime {table.runtime} needs packages {kinds[0]}, and {quote(name)} "
            yield "environment", f"{message}has those of {kinds[1]}; name another environment"
    if name not in environments:
        hint = suggest_name(name, environments)
        hint = hint or f"; add [tool.exporter.environments.{name}] with `requirements`"
        yield "environment", f"no environment has the name {quote(name)}{hint}"
    if table.runtime not in RUNTIMES:
        message = "is only valid for the built-in runtimes: a plugin runs in the workers"
        yield "environment", f"{message}' environment; remove it"


def _find_option_problems(table: DeviceTable) -> Iterator[tuple[str, str]]:
    """Yield options that no session of ONNX Runtime, or not this one, has."""
    for name in table.session_options:
        if "." not in name and name not in _SESSION_ATTRIBUTES:
            hint = suggest_nearest(name, _SESSION_ATTRIBUTES)
            hint = hint or '; a config entry contains a dot: "session.set_denormal_as_zero"'
            message = f"no option of a session has the name {quote(name)}{hint}"
            yield f"session_options/{name}", message
    for provider in table.provider_options:
        if provider not in table.providers:
            hint = suggest_nearest(provider, table.providers) or "; add it to `providers`"
            message = f"the device has no provider {quote(provider)}{hint}"
            yield f"provider_options/{provider}", message


def _format_option(value: bool | float | str) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def list_pinned_devices(devices: Iterable[Device]) -> dict[str, Release]:
    """Return the devices of ONNX Runtime whose environment pins a release, with the release."""
    return {device.name: device.pinned_release for device in devices if device.pinned_release}


def add_consumer_devices(model: EffectiveSettings) -> tuple[str, ...]:
    """Return the devices of an entry with those that run the promised release."""
    names, pinned = model.settings.devices, model.context.pinned
    consumers = model.settings.consumers if model.has_valid("consumers") else ()
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
    alias = _ALIASES.get(base.lower())
    hint = f"; did you mean '{alias}'?" if alias in bases else near
    hint = hint or f"; use {join_words(sorted(bases), 'or')}"
    return f"no device has the name {quote(base)}{hint}"


_PATH: KeyPath = SETTINGS_KEYS
_FOLDERS = ("manifests", "build", "reports", "templates")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The project, and the defaults of its models."""

    project: Project
    layer: Layer | None
    file: TomlFile | None = None


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
    if not isinstance(file, TomlFile) or table is None:
        built_in = tuple(BUILT_IN_DEVICES.values())
        project = _build_project(
            root, ProjectTable(), None, devices=built_in, environments=(), gate=DEFAULT_GATE
        )
        return ProjectSettings(project=project, layer=None)
    settings, removed = validate(ProjectTable, file, _PATH, report)
    source = _SettingsFile(file, settings, report)
    environments = _resolve_environments(source)
    devices = _resolve_devices(source, environments, root)
    declared = table.get("toolchains")
    declared = declared if isinstance(declared, dict) else ()
    job_environments = _resolve_job_environments(source, declared)
    _check_folders(source)
    gate = _resolve_gate(source)
    for name in settings.evidence.keys() - devices.keys():
        source.add_problem(("evidence", name), format_unknown_device(name, devices))
    project = _build_project(
        root,
        settings,
        file,
        devices=tuple(devices.values()),
        environments=tuple(environments.values()),
        job_environments=job_environments,
        gate=gate,
    )
    for index, message in find_device_problems(settings.defaults.devices, project.device_names):
        source.add_problem(("defaults", "devices", index), message)
    layer = Layer(
        file=file,
        path=(*_PATH, "defaults"),
        table=settings.defaults,
        broken={str(key[1]): each for key, each in removed.items() if key[:-1] == ("defaults",)},
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
            if file and (path := (*_PATH, key)) in file.lines
        },
        evidence={name: each.age for name, each in table.evidence.items()},
        elsewhere=tuple(name for name, each in table.evidence.items() if each.elsewhere),
        **resolved,
    )


def _resolve_gate(source: _SettingsFile) -> Gate:
    """Return the policies with the lines of their keys; report findings that a table has twice."""
    table = source.table.gate
    lines, policies = {"": source.find_line(("gate",))}, []
    tables: dict[KeyPath, ModelGateTable] = {(): table}
    tables |= {("models", name): each for name, each in table.models.items()}
    for start, each in tables.items():
        prefix = ".".join(map(str, (*start, "")))
        actions: dict[FindingKind, Action] = {}
        for action in ACTIONS:
            for index, name in enumerate(getattr(each, action)):
                path = ("gate", *start, action, index)
                if known := actions.get(FINDINGS[name]):
                    message = f"{quote(name)} is also in `{known}`; remove one of the two"
                    source.add_problem(path, message)
                actions.setdefault(FINDINGS[name], action)
                lines[f"{prefix}{name}"] = source.find_line(path)
        for key in each.limits:
            lines[f"{prefix}limits.{key}"] = source.find_line(("gate", *start, "limits", key))
        limits = {FINDINGS[name]: limit for name, limit in each.limits.items()}
        policies.append(GatePolicy(actions=actions, limits=limits))
    return Gate(
        policy=policies[0],
        models=tuple(
            ModelPolicy.from_fields(policy, models=name)
            for name, policy in zip(table.models, policies[1:], strict=True)
        ),
        lines={key: line for key, line in lines.items() if line},
    )


def _check_folders(source: _SettingsFile) -> None:
    """Report folders for output that are inside a folder for input or inside each other."""
    table = source.table
    for key in ("build", "reports"):
        for other in _FOLDERS:
            inner, outer = getattr(table, key), getattr(table, other)
            if key != other and f"{inner}/".startswith(f"{outer}/"):
                message = f"{quote(inner)} is inside the folder of `{other}`, {quote(outer)}"
                source.add_problem((key if key in table.model_fields_set else other,), message)
    # The store must survive a cleanup of these folders, and must not be read or committed.
    for other in _FOLDERS:
        folder = getattr(table, other)
        if f"{table.store}/".startswith(f"{folder}/"):
            message = f"{quote(table.store)} is inside the folder of `{other}`, {quote(folder)}"
            source.add_problem(("store",), message)
