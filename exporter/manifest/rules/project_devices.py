"""The tables `devices`, `environments` and `toolchains` of `[tool.exporter]`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from exporter.core.device_name import CURRENT, DeviceName
from exporter.core.errors import suggest_name, suggest_nearest
from exporter.manifest.resolved.project import Device, RuntimeEnvironment
from exporter.manifest.rules.settings_file import BUILT_IN_DEVICES, SettingsFile
from exporter.manifest.schema.entry import ID_PATTERN
from exporter.manifest.schema.settings import DeviceTable
from exporter.manifest.syntax.fields import FLOATS
from exporter.manifest.syntax.runtimes import PLUGIN, RUNTIMES
from exporter.manifest.syntax.values import KeyPath, join_words, quote
from exporter.virtual_environments import NPM, EnvironmentDefinition

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
#: Options of providers and sessions, in lower case, under which a run with arrays is not what a
#: program does -> the reason. A value of 0 switches the first four off.
_UNPROVABLE = {
    **dict.fromkeys(
        (
            "enable_cuda_graph",
            "trt_cuda_graph_enable",
            "nv_cuda_graph_enable",
            "enablegraphcapture",
        ),
        "a captured graph returns nothing from the second run on unless a program binds inputs "
        "and outputs at fixed addresses; remove it: the graph runs the same kernels",
    ),
    **dict.fromkeys(
        (
            *("user_compute_stream", "has_user_compute_stream"),
            *("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache"),
        ),
        "its value is an address in the memory of one process; remove it",
    ),
}
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")


def resolve_devices(settings_file: SettingsFile, toolchains: object, root: Path) -> dict[str, Any]:
    """Return the devices and environments of a project by the names of its fields.

    `toolchains`: The table as written, which also has the names of invalid tables.
    """
    environments = _resolve_environments(settings_file)
    devices = _resolve_devices(settings_file, environments, root)
    declared = toolchains if isinstance(toolchains, dict) else ()
    return {
        "devices": tuple(devices.values()),
        "environments": tuple(environments.values()),
        "job_environments": _resolve_job_environments(settings_file, declared),
    }


def _check_name(
    settings_file: SettingsFile, key_path: KeyPath, reserved: Collection[str] = (), other: str = ""
) -> None:
    """Report a name of a table with other characters; the name is the end of the path."""
    name = str(key_path[-1])
    if not re.fullmatch(ID_PATTERN, name) or name in reserved:
        form = f"a name of a-z, 0-9, '_', '.' and '-'{other}"
        settings_file.add_problem(key_path, f"expected {form}, got {quote(name)}")


def _resolve_environments(settings_file: SettingsFile) -> dict[str, RuntimeEnvironment]:
    environments = {}
    for name, table in settings_file.table.environments.items():
        path = ("environments", name)
        _check_name(settings_file, path)
        prefixes = {each.startswith(NPM) for each in table.requirements}
        if len(prefixes) > 1 or (table.python and True in prefixes):
            message = "packages of npm need an environment of their own, without `python`"
            settings_file.add_problem((*path, "requirements"), message)
        environments[name] = RuntimeEnvironment(
            name=name,
            requirements=table.requirements,
            python=table.python or "",
            location=f"{settings_file.file.name}:{settings_file.find_line(path) or 1}",
        )
    return environments


def _resolve_job_environments(
    settings_file: SettingsFile, declared: Iterable[str]
) -> dict[str, EnvironmentDefinition]:
    """Return the environments of devices with a suffix; one without requirements is invalid."""
    environments = {}
    tables = settings_file.table.toolchains
    for name in declared:
        path = ("toolchains", name)
        _check_name(settings_file, path)
        if name == CURRENT:
            message = f"{quote(name)} is the name of the project's own packages; use another name"
            settings_file.add_problem(path, message)
        requirements = tables[name].requirements if name in tables else ()
        environments[name] = EnvironmentDefinition(requirements=requirements, adds_to_current=True)
    return environments


def _resolve_devices(
    settings_file: SettingsFile, environments: Mapping[str, RuntimeEnvironment], root: Path
) -> dict[str, Device]:
    """Return the built-in devices and those of the settings, which may replace them."""
    devices = dict(BUILT_IN_DEVICES)
    for name, table in settings_file.table.devices.items():
        path = ("devices", name)
        _check_name(settings_file, path, FLOATS, " that is not a dtype")
        for key, message in chain(
            _find_problems(table), _find_environment_problems(table, environments)
        ):
            settings_file.add_problem((*path, *key.split("/")) if key else path, message)
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
    for kind, options in (
        ("session_options", table.session_options),
        *((f"provider_options/{name}", each) for name, each in table.provider_options.items()),
    ):
        for name, value in options.items():
            reason = _UNPROVABLE.get(name.rpartition(".")[2].lower())
            if reason and str(value).lower() not in ("0", "false", "default"):
                yield f"{kind}/{name}", f"cannot be proved: {reason}"
    for provider in table.provider_options:
        if provider not in table.providers:
            hint = suggest_nearest(provider, table.providers) or "; add it to `providers`"
            message = f"the device has no provider {quote(provider)}{hint}"
            yield f"provider_options/{provider}", message


def _format_option(value: bool | float | str) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
