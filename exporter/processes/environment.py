"""Build the environment of a worker from an allow-list, to keep secrets of the parent out."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

#: Switches private functions of torch off: `none`, or a list of the groups that remain on.
TORCH_PRIVATE = "EXPORTER_TORCH_PRIVATE"

#: The minor releases of torch with which the groups of private functions were tested.
TESTED_TORCH = ((2, 13), (2, 14), (2, 15))

#: The names of variables that workers do not receive, separated by commas.
WITHHELD = "EXPORTER_WITHHELD"

#: Variables that change results in native code. All results depend on them.
_SEMANTIC = ("TORCH_*", "TORCHINDUCTOR_*", "ORT_*")
#: Folders of downloads. A model that reads a file in one depends on all of these variables.
CACHES = frozenset({"TORCH_HOME", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"})
#: Folders that differ between machines. torch sets one of them.
_LOCATIONS = CACHES | {"TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"}
#: Names of secrets. Workers receive those that the project lists. No key contains their values.
_SECRETS = ("*TOKEN*", "*SECRET*", "*PASSW*", "*CREDENTIAL*", "*_KEY", "*_KEY_*", "*APIKEY*")
#: Paths, and the variables that the worker's packages read.
_ALLOWED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    *_LOCATIONS,
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONUTF8",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "CUDA_*",
    "NVIDIA_*",
    "TORCH_*",
    "TORCHINDUCTOR_*",
    "ORT_*",
    TORCH_PRIVATE,
)

#: One thread per worker: workers share the cores, and sums are the same on every machine.
#: No TF32 on NVIDIA GPUs in PyTorch and all runtimes: it adds an error of 1e-3.
#: Fixed hashes, because exporters iterate over sets. No buffer, to keep all output of a crash.
#: ONNX Runtime would write a database in the home folder and send events to its maker.
_FIXED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "NVIDIA_TF32_OVERRIDE": "0",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}
#: One locale and one time zone: C libraries and child processes read them, which no hook sees.
#: macOS has no locale `C.UTF-8`. A project that lists such a variable gets its own value.
_UTF8 = "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8"
_LOCALE = {"LANG": _UTF8, "LC_ALL": _UTF8, "TZ": "UTC"}


def describe_untested_torch() -> str:
    """Return a line if the installed torch was not tested, else ""; torch is not imported."""
    try:
        major, minor = (int(part) for part in version("torch").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return ""
    if (major, minor) in TESTED_TORCH:
        return ""
    change = "newer" if (major, minor) > TESTED_TORCH[-1] else "older"
    reason = f"torch {major}.{minor} is {change} than this program knows"
    return f"{reason}: speed-ups are off, verdicts are the same"


def make_worker_environment(
    parent: Mapping[str, str], patterns: Iterable[str] = ()
) -> dict[str, str]:
    """Return the allowed variables of `parent` and the fixed variables of all workers.

    The patterns are more names, with wildcards, that the project lists.
    """
    patterns = tuple(patterns)
    allowed = {name: value for name, value in parent.items() if _is_allowed(name, patterns)}
    fixed = {name: _LOCALE[name] for name in _LOCALE if not _matches(name, patterns)} | _FIXED
    withheld = {WITHHELD: ",".join(sorted(parent.keys() - allowed.keys() - fixed.keys()))}
    return allowed | fixed | withheld


def is_fixed(name: str, patterns: Iterable[str] = ()) -> bool:
    """Return True if a variable has one value in all workers."""
    return name in _FIXED or (name in _LOCALE and not _matches(name, tuple(patterns)))


def is_passed(name: str, patterns: Iterable[str] = ()) -> bool:
    """Return True if workers receive a variable of the parent."""
    patterns = tuple(patterns)
    return not is_fixed(name, patterns) and _is_allowed(name, patterns)


def list_shared_variables(
    parent: Mapping[str, str], patterns: Iterable[str] = ()
) -> dict[str, str]:
    """Return the variables that workers on other hosts receive from this process.

    All results depend on them. A secret is one of them only if the project lists it.
    """
    patterns, defaults = tuple(patterns), (*_SEMANTIC, TORCH_PRIVATE)
    return {
        name: value
        for name, value in parent.items()
        if _has_meaning(name, patterns, defaults)
        and (_matches(name, patterns) or not _is_secret(name))
    }


def digest_variables(parent: Mapping[str, str], patterns: Iterable[str]) -> str:
    """Return a hash of the variables that results depend on.

    A secret counts only by its name, because a short value could be found from its hash.
    """
    patterns = tuple(patterns)
    states = [
        (name, "" if _is_secret(name) else value)
        for name, value in sorted(parent.items())
        if _has_meaning(name, patterns, _SEMANTIC)
    ]
    return hashlib.sha256(repr(states).encode(errors="surrogateescape")).hexdigest()


def hash_variable(name: str, value: str | None) -> str:
    """Return the state of one variable: its hash, or `missing`."""
    if value is None:
        return "missing"
    text = "" if _is_secret(name) else value
    return hashlib.sha256(f"{name}={text}".encode(errors="surrogateescape")).hexdigest()


def _is_allowed(name: str, patterns: tuple[str, ...]) -> bool:
    return _matches(name, patterns) or (_matches(name, _ALLOWED) and not _is_secret(name))


def _has_meaning(name: str, patterns: tuple[str, ...], defaults: tuple[str, ...]) -> bool:
    """Return True if all results depend on a variable; the project may list any."""
    is_default = name not in _LOCATIONS and _matches(name, defaults)
    return name not in _FIXED and (is_default or _matches(name, patterns))


def _is_secret(name: str) -> bool:
    return _matches(name.upper(), _SECRETS)


@lru_cache(maxsize=1 << 14)  # each model has the same variables
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
