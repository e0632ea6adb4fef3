"""What a record is valid for, as named parts.

In: a `ModelSpec`, a device and the installed tools. Out: a table part -> digest or version,
which goes into each record; where one differs later, the record is of another time, and `cache.py`
says so.

The files and packages that the model was made from are not known before it ran: the worker lists
them, with their hashes, in the record itself.
"""

from __future__ import annotations

import hashlib
import platform
import posixpath
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what is installed is looked at before any manifest is read
    from exporter.manifest import Device, ModelSpec, Override

#: Distributions whose version can change a file or a verdict.
DISTRIBUTIONS = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")
#: The part that the checks alone read.
CHECKS = "checks"
#: Before the name of a tool among the parts of a fingerprint.
TOOL_PREFIX = "tool."
#: The last part of a source's name that stands for the listing of a folder.
LISTING = "*.py"

_OWN = "onnx-exporter-matrix"
#: What an installer says of itself.
_ADDED = tuple(f".dist-info/{name}" for name in ("INSTALLER", "REQUESTED", "RECORD"))
#: What describes or judges a cell and does not change what was found.
_NOT_PROVED = frozenset(
    {"line", "manifest", "description", "owner", "tags", "expect", "skip", "timeout", "memory"}
    # Each cell is one opset on one device: that there are others changes nothing for it.
    | {"opsets", "devices"}
)
#: The folder of manifests where no project says another.
_USUAL_HOME = "manifests"
#: What the checks alone read: the file and PyTorch's outputs are the same whatever it says.
_CHECKED = frozenset({"tolerance", "thorough", "latency"})
#: The part of a record that was made thoroughly; of the others it is missing.
THOROUGH = "thorough"


def compute_fingerprint(spec: ModelSpec) -> dict[str, str]:
    """The parts that all cells of a model share: the entry, what its checks read, the tools."""
    made, held = _split(spec.overrides)
    # One by one, since a table says which fields of the outputs' items to leave out.
    left_out = dict.fromkeys(_NOT_PROVED | _CHECKED, True)
    # Without defaults: a key that a new version adds changes nothing for those who do not use it.
    entry = spec.model_copy(update={"overrides": made}).model_dump_json(
        exclude={**left_out, "outputs": {"__all__": set(_CHECKED)}}, exclude_defaults=True
    )
    checks = spec.model_copy(update={"overrides": held}).model_dump_json(
        include={
            "tolerance": True,
            "latency": True,
            "outputs": {"__all__": {"tolerance"}},
            "overrides": True,
        },
        exclude_defaults=True,
    )
    parts = {"entry": _digest(entry + _home(spec)), CHECKS: _digest(checks), **read_tool_parts()}
    return parts | ({THOROUGH: "yes"} if spec.thorough else {})


def _home(spec: ModelSpec) -> str:
    """Where the entry's files are looked for: in another folder, the same words mean others.

    Empty for the usual folder, like any other default.
    """
    folder = posixpath.dirname(spec.manifest)
    return "" if folder == _USUAL_HOME else folder or "."


def _split(overrides: tuple[Override, ...]) -> tuple[tuple[Override, ...], tuple[Override, ...]]:
    """What overrides say of the file, and what they say of its checks."""
    if not overrides:
        return (), ()
    from exporter.manifest import Override

    nothing: dict[str, object] = {"tolerance": None, "outputs": {}}
    made = [override.model_copy(update=nothing) for override in overrides]
    other = dict.fromkeys(("exporter", "capture", "ir_version"))
    held = [override.model_copy(update={**other, "options": {}}) for override in overrides]
    conditions = [Override(opsets=each.opsets, device=each.device) for each in overrides]
    return (
        tuple(each for each, bare in zip(made, conditions, strict=True) if each != bare),
        tuple(each for each, bare in zip(held, conditions, strict=True) if each != bare),
    )


def hash_device(device: Device) -> str:
    """The part `device` of the cells that are checked there."""
    return _digest(device.to_json())


def drop_tool_parts(parts: Mapping[str, str]) -> dict[str, str]:
    """What the project itself says, whatever is installed."""
    return {part: value for part, value in parts.items() if not part.startswith(TOOL_PREFIX)}


@cache
def read_tool_versions() -> dict[str, str]:
    """Version of every tool that has a say, without importing one; `missing` where it is."""
    tools = {"python": platform.python_version(), "platform": _platform()}
    for name in ("exporter", *DISTRIBUTIONS):
        tools[name] = _version(_OWN if name == "exporter" else name)
    return tools


@cache
def read_package_state(name: str) -> str:
    """Version and a digest of the list of files of an installed distribution; empty where none is.

    The digest tells two builds of one version apart, such as torch for the CPU and for CUDA. It is
    the same in every environment that the same wheel is installed in.
    """
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return ""
    return f"{found.version} {_digest(_record_of(found))[:12]}"


def read_loaded_state(name: str, root: Path) -> str:
    """The state of what a record lists among its packages.

    That is a distribution by its name, or a library outside the project by its path from there.
    """
    return f"file {file_digest(root / name)}" if "/" in name else read_package_state(name)


def file_digest(path: Path) -> str:
    """The sha256 of a file, in hex; empty where it cannot be read.

    Of `folder/*.py`, the digest of the names of what Python can import from the folder: a new
    module or package may be imported in the place of another.
    """
    if path.name == LISTING:
        return _listing(path.parent)
    try:
        found = path.stat()
        return _digest_of(path, found.st_size, found.st_ctime_ns, found.st_ino)
    except OSError:
        return ""


@cache
def _digest_of(path: Path, _size: int, _changed: int, _inode: int) -> str:
    """Read once while it stays as it is: every record of a model asks for its weights."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listing(folder: Path) -> str:
    try:
        names = sorted(path.name for path in folder.iterdir() if _is_importable(path))
    except OSError:
        return ""
    return _digest("\n".join(names))


def _is_importable(path: Path) -> bool:
    """Python takes a package before an extension, and an extension before a module."""
    return path.suffix in (".py", ".so", ".pyd") or (path / "__init__.py").is_file()


def have_tools_changed() -> bool:
    """Whether a tool is another one now than when this process first looked at it."""
    if read_exporter_state() != read_exporter_state.__wrapped__():
        return True
    # Whoever installs renames folders in the one that holds them all.
    if _site_stamps() == _first_site_stamps():
        return False
    return any(read_package_state(n) != read_package_state.__wrapped__(n) for n in DISTRIBUTIONS)


@cache
def _first_site_stamps() -> tuple[int, ...]:
    return _site_stamps()


def _site_stamps() -> tuple[int, ...]:
    """When the folders that packages are installed in changed last; of those not there, 0."""
    folders = [Path(name) for name in sys.path]
    return tuple(path.stat().st_ctime_ns if path.is_dir() else 0 for path in folders)


@cache
def read_tool_parts() -> dict[str, str]:
    """The parts that all cells share: Python, the platform, our own modules, the tools."""
    _first_site_stamps()  # before anything is looked at
    own = {
        "python": platform.python_version(),
        "platform": _platform(),
        "exporter": read_exporter_state(),
    }
    states = {name: read_package_state(name) for name in DISTRIBUTIONS}
    return {f"{TOOL_PREFIX}{name}": state for name, state in (own | states).items()}


def _record_of(found: Distribution) -> str:
    """The list of files with their hashes, but for what an installer adds to those of the wheel."""
    lines = (found.read_text("RECORD") or "").splitlines()
    return "\n".join(sorted(line for line in lines if not _is_added(line)))


def _is_added(line: str) -> bool:
    """Scripts name the environment's own Python, and compiled files come with or without."""
    name = line.partition(",")[0]
    return name.startswith("..") or "__pycache__/" in name or name.endswith(_ADDED)


def _version(name: str) -> str:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return "missing"


def _platform() -> str:
    return f"{platform.system()} {platform.machine()}".lower()


@cache
def read_exporter_state() -> str:
    """Our own version and a digest of our modules, whose version no edit in a checkout changes."""
    package = Path(__file__).parents[1]
    files = sorted(package.rglob("*.py"))
    listed = "".join(f"{path.relative_to(package)}:{file_digest(path)};" for path in files)
    return f"{_version(_OWN)} {_digest(listed)[:12]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
