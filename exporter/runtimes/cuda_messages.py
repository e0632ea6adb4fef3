"""Messages of CUDA as one sentence, without the C++ functions around them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

#: In a message of ONNX Runtime: `CUDA failure 2: out of memory ; GPU=0 ; hostname=`.
_FAILURE = re.compile(
    r"(?P<library>CUDA|CUDNN|CUBLAS|CUFFT|CUSPARSE) failure -?\d+:\s*(?P<reason>.+?)\s*;"
    r"(?:\s*GPU=(?P<gpu>\d+))?"
)
_QUERY = ("--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits")
#: Seconds. A driver that hangs must not delay a message.
_PATIENCE = 5.0


def describe_cuda_failure(text: str, environment: Mapping[str, str]) -> str:
    """Return `CUDA: out of memory; 78 of 79 GiB of GPU 0 are in use`, or "" for other messages.

    `environment`: The variables of this process, which select its GPUs.
    """
    match = _FAILURE.search(text)
    if match is None:
        return ""
    reason, gpu = match["reason"], match["gpu"] or "0"
    if "no CUDA-capable device" in reason:
        reason = "no device is visible"
        if "CUDA_VISIBLE_DEVICES" in environment:
            value = environment["CUDA_VISIBLE_DEVICES"]
            reason += f" (CUDA_VISIBLE_DEVICES is {value or 'empty'})"
    elif "out of memory" in reason or "ALLOC_FAILED" in reason:
        reason = "out of memory"
        # With the variable, the number counts only the visible GPUs.
        if use := "" if "CUDA_VISIBLE_DEVICES" in environment else _measure_use(gpu, environment):
            reason += f"; {use} of GPU {gpu} are in use"
    return f"{match['library']}: {reason}"


def _measure_use(gpu: str, environment: Mapping[str, str]) -> str:
    """Return the used memory of a GPU, `78 of 79 GiB`; "" without nvidia-smi."""
    command = ("nvidia-smi", "-i", gpu, *_QUERY)
    try:
        output = subprocess.run(
            command, env={**environment}, capture_output=True, timeout=_PATIENCE, check=True
        ).stdout
        used, total = (int(text) / 1024 for text in output.decode().split(","))
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return f"{used:.0f} of {total:.0f} GiB"
