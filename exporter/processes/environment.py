"""The environment that workers get: a list of what is allowed, so that no secret is passed on.

In: the environment of the parent. Out: the environment of a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

#: Where things are, how text is written, and what the packages of the worker read.
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
)

#: One thread per worker: workers share the cores, and sums come out the same on every machine.
#: No TF32 on NVIDIA's GPUs, in PyTorch and in every runtime: an error of 1e-3 that no file has.
#: Fixed hashes, because exporters iterate over sets. Unbuffered, so that a crash loses no line.
_FIXED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "NVIDIA_TF32_OVERRIDE": "0",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}


def worker_environment(parent: Mapping[str, str]) -> dict[str, str]:
    """What a worker may see of `parent`, and what is fixed for every worker."""
    allowed = {
        name: value
        for name, value in parent.items()
        if any(fnmatchcase(name, pattern) for pattern in _ALLOWED)
    }
    return allowed | _FIXED
