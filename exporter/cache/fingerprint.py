"""Compute the fingerprint of a record: the hashes of everything that it depends on.

Each record contains its fingerprint. If a part changes, the record is stale (see `staleness`). The
fingerprint is known before a model runs. The files and packages that a model loads are known only
afterwards: the worker adds them to the record with their hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import posixpath
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from exporter.cache.search_path import (
    SEARCH_PATH,
    list_metadata_folders,
    make_portable,
    read_search_path,
)
from exporter.core.files import hash_file
from exporter.processes.environment import TORCH_PRIVATE, digest_variables, hash_variable

if TYPE_CHECKING:  # the no-op check reads packages before it imports a manifest
    from exporter.manifest import Device, ModelSpec, Override, RuntimeEnvironment

#: Distributions that can change a file or a verdict.
DISTRIBUTIONS = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")
#: The part that only the checks depend on.
CHECKS = "checks"
#: The part of the environment variables.
ENVIRONMENT = "environment"
#: The part of a record that was proved thoroughly. Other records do not have it.
THOROUGH = "thorough"
#: The prefix of a tool among the parts.
TOOL_PREFIX = "tool."
_OF_ENVIRONMENT = " of "
#: The hash of the files of a package, after its version.
_DIGEST = re.compile(r" [0-9a-f]{12}$")
#: Packages that a new environment may have in another version.
_INSTALLERS = ("pip", "setuptools", "wheel")
#: The last component of a source that represents the list of modules in a folder.
LISTING = "*.py"
#: The last component of a source that represents the list of all names in a folder.
ALL_FILES = "*"
#: The states of a source that is absent, and of one that is a folder.
MISSING, FOLDER = "missing", "folder"

_OWN_DISTRIBUTION = "onnx-exporter-matrix"
#: A folder that Python creates.
_PYCACHE = "__pycache__"
#: Files that an installer adds to those of the wheel.
_INSTALLER_FILES = tuple(f".dist-info/{name}" for name in ("INSTALLER", "REQUESTED", "RECORD"))
#: Keys that describe or judge a cell and do not change its result.
_DESCRIPTIVE_KEYS = frozenset(
    {"line", "manifest", "description", "owner", "tags", "expect", "skip", "timeout", "memory"}
    # A cell has one opset and one device. Other opsets and devices do not change it.
    | {"opsets", "devices"}
)
#: The default folder of manifests.
_DEFAULT_MANIFESTS = "manifests"
#: Keys of the checks. They change neither the file nor PyTorch's outputs.
_CHECK_KEYS = frozenset({"tolerance", "thorough", "measure", "consumers"})


def compute_fingerprint(
    spec: ModelSpec, variables: Iterable[str] = (), sandbox: str = "none"
) -> dict[str, str]:
    """Return the parts that all cells of a model share: entry, checks, variables and tools.

    A model that fails in a sandbox may pass without it, so the sandbox is a part.
    """
    export_overrides, check_overrides = _split_overrides(spec.overrides)
    # Key by key, because a table selects the excluded fields of the outputs' items.
    excluded = dict.fromkeys(_DESCRIPTIVE_KEYS | _CHECK_KEYS, True)
    # Without defaults: a new key in a later version changes only the entries that use it.
    entry = spec.model_copy(update={"overrides": export_overrides}).model_dump_json(
        exclude={**excluded, "outputs": {"__all__": set(_CHECK_KEYS)}}, exclude_defaults=True
    )
    checks = spec.model_copy(update={"overrides": check_overrides}).model_dump_json(
        include={
            "tolerance": True,
            "measure": True,
            "consumers": True,
            "outputs": {"__all__": {"tolerance"}},
            "overrides": True,
        },
        exclude_defaults=True,
    )
    # Paths in the entry are relative to its folder. The default folder adds nothing.
    folder = posixpath.dirname(spec.manifest)
    location = "" if folder == _DEFAULT_MANIFESTS else folder or "."
    parts = {
        "entry": _hash_text(entry + location),
        CHECKS: _hash_text(checks),
        ENVIRONMENT: read_variables((*variables, *spec.depends.environment))
        + ("" if sandbox == "none" else f" {sandbox}"),
        **read_tool_parts(),
    }
    return parts | ({THOROUGH: "yes"} if spec.thorough else {})


def _split_overrides(
    overrides: tuple[Override, ...],
) -> tuple[tuple[Override, ...], tuple[Override, ...]]:
    """Return the overrides that concern the export, and those that concern the checks."""
    if not overrides:
        return (), ()
    from exporter.manifest import Override

    no_checks: dict[str, object] = {"tolerance": None, "outputs": {}}
    no_export: dict[str, object] = {
        **dict.fromkeys(("exporter", "capture", "ir_version")),
        "options": {},
    }
    export = [override.model_copy(update=no_checks) for override in overrides]
    checks = [override.model_copy(update=no_export) for override in overrides]
    conditions = [Override(opsets=each.opsets, device=each.device) for each in overrides]
    return (
        tuple(each for each, empty in zip(export, conditions, strict=True) if each != empty),
        tuple(each for each, empty in zip(checks, conditions, strict=True) if each != empty),
    )


def read_variables(patterns: Iterable[str]) -> str:
    """Return a hash of the environment variables that results depend on."""
    return digest_variables(os.environ, patterns)


def read_variable_state(name: str) -> str:
    """Return the state of a variable that a model read: its hash, or `missing`."""
    return hash_variable(name, os.environ.get(name))


def hash_device(device: Device) -> str:
    """Return the part `device` of the cells on this device."""
    library = hash_source(Path(device.provider_library)) if device.provider_library else ""
    return _hash_text(device.identity.to_json() + library)


def format_environment_parts(environment: RuntimeEnvironment | None) -> dict[str, str]:
    """Return the installed packages of a device's environment as parts.

    There are none before it is created: a stored record is valid for every version that the
    requirements allow.
    """
    if environment is None:
        return {}
    return {
        f"{TOOL_PREFIX}{name}{_OF_ENVIRONMENT}{environment.name}": version
        for name, version in environment.packages.items()
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


@cache
def read_tool_versions() -> dict[str, str]:
    """Return the version of each tool without an import, or `missing`."""
    tools = {"python": platform.python_version(), "platform": _read_platform()}
    for name in ("exporter", *DISTRIBUTIONS):
        tools[name] = _read_version(_OWN_DISTRIBUTION if name == "exporter" else name)
    return tools


@cache
def read_package_state(name: str, overlay: str = "", root: Path | None = None) -> str:
    """Return the version of an installed distribution and a hash of its list of files.

    The hash distinguishes two builds of one version, such as torch for the CPU and for CUDA. It is
    the same in every environment with the same wheel. The state of an editable installation in a
    project is its location, because records have the states of its files. The overlay is the
    package folder of an environment that adds to the current one.
    """
    path = [overlay, *list_metadata_folders()] if overlay else list(list_metadata_folders())
    for installed in distributions(name=name, path=path):
        origin = json.loads(installed.read_text("direct_url.json") or "{}")
        if root is not None and origin.get("dir_info", {}).get("editable"):
            location = make_portable(unquote(urlsplit(origin["url"]).path), root)
            if not Path(location).is_absolute():
                return f"editable:{location}"
        return f"{installed.version} {_hash_text(_list_wheel_files(installed))[:12]}"
    return ""


def _list_wheel_files(installed: Distribution) -> str:
    """Return the lines of RECORD without the files that an installer adds."""
    lines = []
    for line in (installed.read_text("RECORD") or "").splitlines():
        name = line.partition(",")[0]
        # Scripts contain the path of the environment's Python. Compiled files are optional.
        is_added = name.startswith("..") or "__pycache__/" in name
        if not (is_added or name.endswith(_INSTALLER_FILES)):
            lines.append(line)
    return "\n".join(sorted(lines))


def read_loaded_state(name: str, root: Path, overlay: str = "") -> str:
    """Return the current state of an item of `Record.packages`.

    The name is a distribution, the path of a file outside of the project, or `SEARCH_PATH`.
    """
    if name == SEARCH_PATH:
        return read_search_path(root, os.environ.get("PYTHONPATH", ""))
    if "/" in name:
        return f"file {read_source_state(root / name)}"
    return read_package_state(name, overlay, root)


def read_source_state(path: Path) -> str:
    """Return the state of a path that a job used.

    Returns:
        `link TEXT` for a symlink, `folder`, `missing`, the SHA-256 of the content or listing, or
        "" if the file cannot be read.
    """
    if path.name in (LISTING, ALL_FILES):
        return hash_source(path)
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"link {path.readlink()}"
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError:
        return ""
    if stat.S_ISDIR(mode):
        return FOLDER
    return hash_source(path) if stat.S_ISREG(mode) else ""  # a pipe has no content


def hash_source(path: Path) -> str:
    """Return the SHA-256 of a file in hex.

    The path `folder/*.py` represents the names of all modules and packages in the folder: a new
    module can replace another one in an import. The path `folder/*` represents all names.

    Returns:
        The hash, or "" if the file or folder cannot be read.
    """
    try:
        if path.name == LISTING:
            return _hash_text("\n".join(_list_importable(path.parent)))
        if path.name == ALL_FILES:
            names = (each.name for each in path.parent.iterdir() if each.name != _PYCACHE)
            return _hash_text("\n".join(sorted(names)))
        state = path.stat()
        return _hash_once(path, state.st_size, state.st_ctime_ns, state.st_ino)
    except OSError:
        return ""


@cache
def _hash_once(path: Path, _size: int, _changed: int, _inode: int) -> str:
    """Return the hash of a file; all records of a model refer to the same weights."""
    return hash_file(path)


def _list_importable(folder: Path) -> list[str]:
    # Python prefers a package to an extension, and an extension to a module.
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix in (".py", ".so", ".pyd") or (path / "__init__.py").is_file()
    )


def have_tools_changed() -> bool:
    """Return True if a tool changed since this process read its state first."""
    if read_exporter_state() != read_exporter_state.__wrapped__():
        return True
    # An installation renames folders in `site-packages` and so changes its timestamp.
    if _read_site_stamps() == _read_first_site_stamps():
        return False
    return any(read_package_state(n) != read_package_state.__wrapped__(n) for n in DISTRIBUTIONS)


@cache
def _read_first_site_stamps() -> tuple[int, ...]:
    return _read_site_stamps()


def _read_site_stamps() -> tuple[int, ...]:
    """Return the last change of each folder of `sys.path`, or 0 if it does not exist."""
    folders = [Path(name) for name in sys.path]
    return tuple(path.stat().st_ctime_ns if path.is_dir() else 0 for path in folders)


@cache
def read_tool_parts(overlay: str = "") -> dict[str, str]:
    """Return the parts of all cells: Python, the platform, this package, the other tools.

    The switch of private functions is a part if it is set, because some groups change results.
    """
    _read_first_site_stamps()  # before the states are read
    parts = {
        "python": platform.python_version(),
        "platform": _read_platform(),
        "exporter": read_exporter_state(),
        **{name: read_package_state(name, overlay) for name in DISTRIBUTIONS},
    }
    if (switch := os.environ.get(TORCH_PRIVATE)) is not None:
        parts["torch_private"] = switch
    return {f"{TOOL_PREFIX}{name}": state for name, state in parts.items()}


def _read_version(name: str) -> str:
    return read_package_state(name).partition(" ")[0] or "missing"


def _read_platform() -> str:
    return f"{platform.system()} {platform.machine()}".lower()


@cache
def read_exporter_state() -> str:
    """Return the version of this package and a hash of its modules.

    The hash is necessary because an edit in a checkout does not change the version.
    """
    package = Path(__file__).parents[1]
    files = sorted(package.rglob("*.py"))
    hashes = "".join(f"{path.relative_to(package)}:{hash_source(path)};" for path in files)
    return f"{_read_version(_OWN_DISTRIBUTION)} {_hash_text(hashes)[:12]}"


def _hash_text(text: str) -> str:
    # Names of files may contain bytes that are not UTF-8.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
