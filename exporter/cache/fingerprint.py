"""Compute the fingerprint of a record, and explain why a stored record is stale.

The fingerprint is known before a model runs. The files and packages that a model loads are known
only afterwards: the worker adds them to the record with their hashes. If the state of a dependency
is unknown, the record is stale.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from exporter.cache.artifact_integrity import SourceStamps
from exporter.cache.code_blocks import find_changed_block
from exporter.cache.states import (
    LISTING,
    MISSING,
    SEARCH_PATH,
    TOOL_PREFIX,
    VERSION_PREFIX,
    compare_modules,
    find_edit,
    hash_source,
    hash_text,
    read_loaded_state,
    read_tool_parts,
    read_variable_state,
    read_variables,
    split_listing,
)
from exporter.manifest import (
    Condition,
    Device,
    Input,
    ModelSpec,
    Output,
    Override,
    RuntimeEnvironment,
)
from exporter.manifest.syntax.table import select_keys
from exporter.records.record import Record, Source, Status

#: The part of the keys that the file depends on.
ENTRY = "entry"
#: The part that only the checks depend on.
CHECKS = "checks"
#: The part of the definition of a device.
DEVICE = "device"
#: The part of the environment variables.
ENVIRONMENT = "environment"
#: The part of a record that was proved thoroughly. Other records do not have it.
THOROUGH = "thorough"
_OF_ENVIRONMENT = " of "
#: The hash of the files of a package, after its version.
_DIGEST = re.compile(r" [0-9a-f]{12}$")
#: Packages that a new environment may have in another version.
_INSTALLERS = ("pip", "setuptools", "wheel")
#: The default folder of manifests.
_DEFAULT_MANIFESTS = "manifests"


def compute_fingerprint(
    spec: ModelSpec, variables: Iterable[str] = (), sandbox: str = "none", root: Path = Path()
) -> dict[str, str]:
    """Return the parts that all cells of a model share: entry, checks, variables and tools.

    A model that fails in a sandbox may pass without it, so the sandbox is a part.
    """
    entry, checks = (_dump_keys(spec, effect) for effect in ("file", "check"))
    parts = {
        ENTRY: hash_text(entry + _find_location(spec, entry + checks, root)),
        CHECKS: hash_text(checks),
        ENVIRONMENT: read_variables(variables) + ("" if sandbox == "none" else f" {sandbox}"),
        **read_tool_parts(),
    }
    return parts | ({THOROUGH: "yes"} if spec.thorough else {})


def _find_location(spec: ModelSpec, keys: str, root: Path) -> str:
    """Return the folder of an entry, or "" if no result depends on it.

    A result depends on it if the entry has paths, which are relative to the folder, or if the
    folder contains more than manifests, because imports search it. For an entry with paths, "" is
    the default folder.
    """
    folder = posixpath.dirname(spec.manifest) or "."
    if ".py" in keys or spec.data_files or spec.depends or spec.custom_ops:
        return "" if folder == _DEFAULT_MANIFESTS else folder
    others = (
        path.is_symlink() or not (path.suffix == ".toml" or path.is_dir())
        for path in (root / folder).rglob("*")
    )
    return folder if any(others) else ""


def _dump_keys(spec: ModelSpec, effect: str) -> str:
    """Return the keys of an entry, its outputs and its overrides that affect the file or a check.

    Without defaults: a new key in a later version changes only the entries that use it.
    """
    keys, input_keys, output_keys, override_keys = (
        select_keys(table, affects=effect) for table in (ModelSpec, Input, Output, Override)
    )
    overrides = tuple(
        each
        for each in spec.overrides
        if each.model_dump(include={*override_keys}, exclude_defaults=True)
    )
    return spec.model_copy(update={"overrides": overrides}).model_dump_json(
        include={
            **dict.fromkeys(keys, True),
            "inputs": {"__all__": {*input_keys}},
            "outputs": {"__all__": {*output_keys}},
            "overrides": {"__all__": {*override_keys, *Condition.model_fields}},
        },
        exclude_defaults=True,
    )


def hash_device(device: Device) -> str:
    """Return the part `device` of the cells on this device."""
    library = hash_source(Path(device.provider_library)) if device.provider_library else ""
    return hash_text(device.identity.to_json() + library)


def format_environment_parts(runtime_environment: RuntimeEnvironment | None) -> dict[str, str]:
    """Return the installed packages of a device's environment as parts.

    There are none before it is created: a stored record is valid for every version that the
    requirements allow.
    """
    if runtime_environment is None:
        return {}
    return {
        f"{TOOL_PREFIX}{name}{_OF_ENVIRONMENT}{runtime_environment.name}": version
        for name, version in runtime_environment.packages.items()
        if name not in _INSTALLERS
    }


def is_known_everywhere(part: str) -> bool:
    """Return False for packages of an environment, which another machine may not have created."""
    return _OF_ENVIRONMENT not in part


def extract_tool_versions(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the version of each tool in a fingerprint, without those of an environment."""
    return {
        part.removeprefix(TOOL_PREFIX): _DIGEST.sub("", state)
        for part, state in parts.items()
        if part.startswith(TOOL_PREFIX) and is_known_everywhere(part)
    }


def drop_tool_parts(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the parts that depend on the project and not on the installed tools."""
    return {part: value for part, value in parts.items() if not part.startswith(TOOL_PREFIX)}


def drop_check_parts(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the parts that the file depends on: without those of the checks and the device."""
    of_cell = (CHECKS, DEVICE, THOROUGH)
    return {p: v for p, v in parts.items() if p not in of_cell and is_known_everywhere(p)}


#: Statuses that a retry may change.
TRANSIENT_STATUSES = frozenset({Status.CRASH, Status.TIMEOUT, Status.KILLED, Status.UNAVAILABLE})


def is_transient(record: Record) -> bool:
    """Return True if a retry with the same inputs may give another result."""
    if record.status not in TRANSIENT_STATUSES or record.is_final:
        return False
    return not record.absent or any(map(os.path.lexists, record.absent))


#: The end of a reason if a file changed during the export: its loaded version is unknown.
DURING_EXPORT = "while it was exported"
_REASONS = {
    ENTRY: "its manifest entry changed",
    "checks": "the promises of its checks changed",
    DEVICE: "the definition of its device changed",
    ENVIRONMENT: "the environment variables or the sandbox of workers changed",
    THOROUGH: "it was not proved thoroughly",
}


class CurrentState:
    """The current project files and installed packages. Each one is read once.

    The overlay is the package folder of an environment that adds to the current one.
    """

    def __init__(self, root: Path, stamps: SourceStamps, overlay: str = "") -> None:
        self._root = root
        self._stamps = stamps
        self._overlay = overlay
        self._states: dict[tuple[str, str], str] = {}
        self._packages: dict[str, str] = {}

    def find_staleness_reason(self, record: Record, parts: Mapping[str, str]) -> str:
        """Return why a record is stale by its fingerprint, sources and variables."""
        if reason := self.find_changed_source_reason(record, parts):
            return reason
        for name, state in record.variables.items():
            if read_variable_state(name) != state:
                return f"the environment variable {name} changed"
        return ""

    def find_changed_source_reason(self, record: Record, parts: Mapping[str, str]) -> str:
        """Return why a record is stale by its fingerprint and sources.

        The parts may be some of the current fingerprint of its cell.
        """
        for part, after in parts.items():
            before = record.fingerprint.get(part)
            if before == after:
                continue
            if part.startswith(TOOL_PREFIX):
                return self._describe_change(part.removeprefix(TOOL_PREFIX), before or "", after)
            return _REASONS[part]
        for source in record.sources:
            if not source.state:
                return f"{source.file} changed {DURING_EXPORT}"
            key = (source.file, source.state)
            if (state := self._states.get(key)) is None:
                path = self._root / source.file
                state = self._stamps.read_state(path, source.file, source.state)
                self._states[key] = state
            if state != source.state:
                return _describe_source(source, state)
        return ""

    def find_changed_package_reason(self, record: Record, prefix: str = "") -> str:
        """Return which package of the record with this prefix changed, or "" if none did."""
        for name, before in record.packages.items():
            if name.startswith(prefix) and (after := self._read_package(name)) != before:
                return self._describe_change(name, before, after)
        return ""

    def list_differences(self, record: Record) -> list[str]:
        """Return the packages and variables that differ, with the recorded and current state."""
        packages = ((name, old) for name, old in record.packages.items() if "/" not in name)
        states = [(name, old, self._read_package(name)) for name, old in packages]
        states += [(name, old, read_variable_state(name)) for name, old in record.variables.items()]
        return [f"{name} `{old}`, now `{new}`" for name, old, new in states if old != new]

    def _describe_change(self, name: str, before: str, after: str) -> str:
        """Return `torch 2.12.1 -> 2.13.0`, or how the files of the same version differ."""
        if name == SEARCH_PATH:
            return f"Python searches for modules in {after}, before in {before}"
        if "/" in name:
            return f"{name} changed"
        old, new = (state.split(" ")[0] or "missing" for state in (before, after))
        if old != new:
            return f"{name} {old} -> {new}"
        if edited := find_edit(name.removeprefix(VERSION_PREFIX), self._overlay):
            return f"{name} {new} is not as it was installed: {edited} differs"
        return f"{name} {new} is another build"

    def _read_package(self, name: str) -> str:
        if name not in self._packages:
            self._packages[name] = read_loaded_state(name, self._root, self._overlay)
        return self._packages[name]


def _describe_source(source: Source, state: str) -> str:
    """Return the change of a source, such as `data.json changed`."""
    if listing := split_listing(source.file):
        folder, pattern, names = listing
        added, removed = compare_modules(source.state, state) if names else ([], [])
        for changed, verb in ((added, "was added"), (removed, "is missing")):
            if changed:
                return f"{posixpath.normpath(f'{folder}/{changed[0]}')} {verb}"
        return f"{folder} has other {'modules' if pattern == LISTING else 'files'}"
    if MISSING in (source.state, state):
        return f"{source.file} {'was added' if source.state == MISSING else 'is missing'}"
    block = find_changed_block(source.state, state)
    return f"{source.file}{f': {block}' if block else ''} changed"
