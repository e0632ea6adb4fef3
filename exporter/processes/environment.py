"""Build the environment of a worker from an allow-list, to keep secrets of the parent out.

Input: the environment of the parent. Output: the environment of a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

#: Switches private functions of torch off: `none`, or a list of the groups that remain on.
TORCH_PRIVATE = "EXPORTER_TORCH_PRIVATE"

#: Paths, locale, and the variables that the worker's packages read.
_ALLOWED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_*",
    "TZ",
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


def make_worker_environment(parent: Mapping[str, str]) -> dict[str, str]:
    """Return the allowed variables of `parent` and the fixed variables of all workers."""
    allowed = {
        name: value
        for name, value in parent.items()
        if any(fnmatchcase(name, pattern) for pattern in _ALLOWED)
    }
    return allowed | _FIXED
