"""Build the environment of a worker from an allow-list, to keep secrets of the parent out."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

#: Switches private functions of torch off: `none`, or a list of the groups that remain on.
TORCH_PRIVATE = "EXPORTER_TORCH_PRIVATE"

#: The names of variables that workers do not receive, separated by commas.
WITHHELD = "EXPORTER_WITHHELD"

#: Variables that change results in native code. All results depend on them.
_SEMANTIC = ("TORCH_*", "TORCHINDUCTOR_*", "ORT_*")
#: Among these, folders of downloads and caches, which differ between machines. torch sets one.
_LOCATIONS = frozenset({"TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"})
#: Names of secrets. Their values are not part of any key.
_SECRETS = ("*TOKEN*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*CREDENTIAL*", "*_KEY", "*APIKEY*")
#: Paths, and the variables that the worker's packages read.
_ALLOWED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_CACHE_HOME",
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


def make_worker_environment(
    parent: Mapping[str, str], patterns: Iterable[str] = ()
) -> dict[str, str]:
    """Return the allowed variables of `parent` and the fixed variables of all workers.

    Args:
        parent: The environment of the parent.
        patterns: More names, with wildcards, that the project lists.
    """
    patterns = (*_ALLOWED, *patterns)
    allowed = {name: value for name, value in parent.items() if _matches(name, patterns)}
    fixed = {name: _LOCALE[name] for name in _LOCALE if not _matches(name, patterns)} | _FIXED
    withheld = {WITHHELD: ",".join(sorted(parent.keys() - allowed.keys() - fixed.keys()))}
    return allowed | fixed | withheld


def is_fixed(name: str, patterns: Iterable[str] = ()) -> bool:
    """Return True if a variable has one value in all workers.

    Args:
        name: The variable.
        patterns: The names that the project lists, with wildcards.
    """
    return name in _FIXED or (name in _LOCALE and not _matches(name, patterns))


def is_passed(name: str, patterns: Iterable[str] = ()) -> bool:
    """Return True if workers receive a variable of the parent."""
    return not is_fixed(name, patterns) and _matches(name, (*_ALLOWED, *patterns))


def list_shared_variables(
    parent: Mapping[str, str], patterns: Iterable[str] = ()
) -> dict[str, str]:
    """Return the variables that workers on other hosts receive from this process.

    All results depend on them. A secret is one of them only if the project lists it.

    Args:
        parent: The environment of the parent.
        patterns: The names that the project lists, with wildcards.
    """
    patterns = tuple(patterns)

    def is_shared(name: str) -> bool:
        if name in _FIXED or name in _LOCATIONS:
            return False
        is_listed = _matches(name, patterns)
        return is_listed or (
            _matches(name, (*_SEMANTIC, TORCH_PRIVATE)) and not _matches(name, _SECRETS)
        )

    return {name: value for name, value in parent.items() if is_shared(name)}


def digest_variables(parent: Mapping[str, str], patterns: Iterable[str]) -> str:
    """Return a hash of the variables that results depend on.

    A secret counts only by its name, because a short value could be found from its hash.

    Args:
        parent: The environment of the parent.
        patterns: Names that the project lists, with wildcards.
    """
    patterns = (*_SEMANTIC, *patterns)
    states = [
        (name, "" if _matches(name, _SECRETS) else value)
        for name, value in sorted(parent.items())
        if _matches(name, patterns) and name not in _FIXED and name not in _LOCATIONS
    ]
    return hashlib.sha256(repr(states).encode(errors="surrogateescape")).hexdigest()


def hash_variable(name: str, value: str | None) -> str:
    """Return the state of one variable: its hash, or `missing`."""
    if value is None:
        return "missing"
    text = "" if _matches(name, _SECRETS) else value
    return hashlib.sha256(f"{name}={text}".encode(errors="surrogateescape")).hexdigest()


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
