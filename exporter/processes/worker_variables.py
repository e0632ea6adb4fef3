"""Build the environment of a worker from an allow-list, to keep secrets of the parent out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from exporter.core.system import NVIDIA_VARIABLES, SWITCH, UTF8_LOCALE

#: Switches private functions of torch off: `none`, or a list of the groups that remain on.
TORCH_PRIVATE = "EXPORTER_TORCH_PRIVATE"

#: The minor releases of torch with which the groups of private functions were tested.
TESTED_TORCH = ((2, 13), (2, 14), (2, 15))

#: The names of variables that workers do not receive, separated by commas.
WITHHELD = "EXPORTER_WITHHELD"

#: Variables of a terminal, which `argparse` and other parts of Python read for the width of lines.
#: They are no dependencies of a model. All results depend on those that the project lists.
TERMINAL = frozenset({"COLUMNS", "LINES", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR"})

#: Variables that change results in native code. All results depend on them.
_SEMANTIC = (
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_COMPILE_DISABLE",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
    "TORCH_FORCE_WEIGHTS_ONLY_LOAD",
    "TORCH_LINALG_PREFER_CUSOLVER",
    "ORT_DISABLE_FLASH_ATTENTION",
    "ORT_DISABLE_FUSED_ATTENTION",
)
#: Folders of downloads. A model that reads a file in one depends on all of these variables.
CACHES = frozenset({"TORCH_HOME", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"})
#: Variables that forbid downloads. A model that reads a file of a cache depends on them, too.
OFFLINE = frozenset({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})
#: Folders in which a driver or a compiler keeps kernels for itself. Each new kernel changes files
#: there that each process reads. A worker gets folders of this tool, whose files are no
#: dependencies. In the folders of the user, a file may be a weight of a model.
KERNEL_CACHES = (
    "CUDA_CACHE_PATH",
    "PYTORCH_KERNEL_CACHE_PATH",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
)
#: Each worker has values of its own for these; a copy of the environment reads them, too.
PRIVATE = frozenset({"TMPDIR", *KERNEL_CACHES})
#: Names of secrets. No key contains the values of those that a project lists.
_SECRETS = ("*TOKEN*", "*SECRET*", "*PASSW*", "*CREDENTIAL*", "*_KEY", "*_KEY_*", "*APIKEY*")
#: The user and the password in a URL.
_LOGIN = re.compile(r"(?<=://)[^/\s]*@")
#: Paths, and the variables that drivers and the worker's packages read. Exact names, because a
#: wildcard would include secrets such as `TORCH_PAT`.
_ALLOWED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "VIRTUAL_ENV"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH"),
        *("CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_PATH", "CUDA_FORCE_PTX_JIT"),
        *("CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_MPS_PIPE_DIRECTORY"),
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
        *("TORCH_LOGS", "TORCH_CPP_LOG_LEVEL", "TORCH_SHOW_CPP_STACKTRACES"),
        *("TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", TORCH_PRIVATE, SWITCH),
        *_SEMANTIC,
        *CACHES,
        *OFFLINE,
    }
)

#: One thread per worker: workers share the cores, and sums are the same on every machine.
#: No TF32 on NVIDIA GPUs in PyTorch and all runtimes: it adds an error of 1e-3.
#: Fixed hashes, because exporters iterate over sets. No buffer, to keep all output of a crash.
#: `torch.cuda.is_available()` asks NVML: after a question to the driver, no fork can use the GPU.
#: ONNX Runtime would write a database in the home folder and send events to its maker.
#: glibc would return the memory of each large tensor, and Linux clear it for the next one: a sixth
#: of the CPU seconds of a model with outputs of 50 MB.
_FIXED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    **NVIDIA_VARIABLES,
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
#: One locale and one time zone: C libraries and child processes read them, which no hook sees.
#: A project that lists such a variable gets its own value.
_LOCALE = {"LANG": UTF8_LOCALE, "LC_ALL": UTF8_LOCALE, "TZ": "UTC"}


def describe_untested_torch(silent: Iterable[str] = ()) -> str:
    """Return a line if the installed torch was not tested, else ""; torch is not imported.

    `silent`: What the workers did not do, because torch reports nothing of a known example.
    """
    try:
        major, minor = (int(part) for part in version("torch").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return ""
    if (major, minor) in TESTED_TORCH:
        return ""
    change = "newer" if (major, minor) > TESTED_TORCH[-1] else "older"
    reason = f"torch {major}.{minor} is {change} than this program knows"
    effect = "; ".join(silent) or "verdicts are the same"
    return f"{reason}: speed-ups are off, {effect}"


def make_worker_environment(
    parent: Mapping[str, str], patterns: Iterable[str] = ()
) -> dict[str, str]:
    """Return the allowed variables of `parent` and the fixed variables of all workers.

    The patterns are more names, with wildcards, that the project lists.
    """
    patterns = tuple(patterns)
    allowed = {
        name: value
        for name, value in parent.items()
        if _matches(name, patterns) or (name in _ALLOWED and not _LOGIN.search(value))
    }
    fixed = {name: _LOCALE[name] for name in _LOCALE if not _matches(name, patterns)} | _FIXED
    withheld = parent.keys() - allowed.keys() - fixed.keys() - TERMINAL
    return allowed | fixed | {WITHHELD: ",".join(sorted(withheld))}


def is_fixed(name: str, patterns: Iterable[str] = ()) -> bool:
    """Return True if a variable has one value in all workers."""
    return name in _FIXED or (name in _LOCALE and not _matches(name, tuple(patterns)))


def is_passed(name: str, patterns: Iterable[str] = ()) -> bool:
    """Return True if workers receive a variable of the parent."""
    patterns = tuple(patterns)
    return not is_fixed(name, patterns) and (name in _ALLOWED or _matches(name, patterns))


def list_shared_variables(
    parent: Mapping[str, str], patterns: Iterable[str] = ()
) -> dict[str, str]:
    """Return the variables that workers on other hosts receive from this process.

    All results depend on them.
    """
    patterns = tuple(patterns)
    passed = make_worker_environment(parent, patterns)
    shared = {name for name in passed if name == TORCH_PRIVATE or _has_meaning(name, patterns)}
    return {name: value for name, value in parent.items() if name in shared}


def digest_variables(parent: Mapping[str, str], patterns: Iterable[str]) -> str:
    """Return a hash of the variables that results depend on, without their secrets."""
    patterns = tuple(patterns)
    states = [
        (name, _remove_secret(name, value))
        for name, value in sorted(parent.items())
        if _has_meaning(name, patterns)
    ]
    return hashlib.sha256(repr(states).encode(errors="surrogateescape")).hexdigest()


def hash_variable(name: str, value: str | None) -> str:
    """Return the state of one variable: its hash, or `missing`."""
    if value is None:
        return "missing"
    text = f"{name}={_remove_secret(name, value)}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _has_meaning(name: str, patterns: tuple[str, ...]) -> bool:
    """Return True if all results depend on a variable; the project may list any."""
    return name not in _FIXED and (name in _SEMANTIC or _matches(name, patterns))


def _remove_secret(name: str, value: str) -> str:
    """Return a value without its secret, because a short one could be found from its hash."""
    return "" if _matches(name.upper(), _SECRETS) else _LOGIN.sub("", value)


@lru_cache(maxsize=1 << 14)  # each model has the same variables
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
