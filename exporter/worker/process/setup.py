"""The settings of a worker: log, memory, threads, seeds and the state of PyTorch.

torch and numpy are imported in the functions, because the fork server imports this module first.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.core.system import IS_LINUX
from exporter.core.text import is_out_of_memory, is_out_of_resources, memory_limit_message
from exporter.manifest import ModelSpec
from exporter.records.record import Record, Status

_STREAMS = {"stdout": 1, "stderr": 2}


def redirect_output(path: Path) -> None:
    """Append all later output to `path`."""
    broken = flush_output()
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in _STREAMS.values():
        os.dup2(log, descriptor)
    if log not in _STREAMS.values():  # if a model closed a stream, `open` reuses its descriptor
        os.close(log)
    for name in broken:
        setattr(sys, name, os.fdopen(_STREAMS[name], "w", buffering=1, closefd=False))
    faulthandler.enable(file=2, all_threads=True)
    dump_stack_at_time_limit(2)


def dump_stack_at_time_limit(log: int) -> None:
    """Write the stacks of all threads to a descriptor at SIGTERM, also if C code runs."""
    faulthandler.register(signal.SIGTERM, file=log, all_threads=True, chain=True)


def flush_output() -> tuple[str, ...]:
    """Flush both streams; return the names of those that a model closed or replaced."""
    broken = []
    for name in _STREAMS:
        try:
            getattr(sys, name).flush()
        except Exception:  # the stream may be closed, None or any object
            broken.append(name)
    return tuple(broken)


def limit_memory(spec: ModelSpec) -> None:
    """Limit the address space of this process to its current size plus `spec.memory`.

    Call it after the import of torch, which reserves gigabytes. A model on a GPU has no
    limit, because the driver reserves address space for all memory of the machine.
    """
    if spec.memory is None or not IS_LINUX or spec.export_device != "cpu":
        return
    import resource

    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:  # without `/proc` the current size is unknown, so there is no limit
        return
    requested = pages * resource.getpagesize() + spec.memory
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = requested if hard == resource.RLIM_INFINITY else min(requested, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


def mark_resource_failures(record: Record, spec: ModelSpec) -> Record:
    """Return the record, with the status `killed` if the machine ran out of resources."""
    message = record.message
    if not record.status.is_red or not is_out_of_resources(message):
        return record
    if spec.memory is not None and is_out_of_memory(message):
        message = f"{memory_limit_message(spec.memory)}: {message}"
    return record.model_copy(update={"status": Status.KILLED, "message": message})


def keep_one_thread() -> None:
    """Use one thread from now on; `torch.set_num_threads` has no effect after this call.

    Workers share the cores, sums are the same on every machine, and a fork has no copy of the
    threads of a pool.
    """
    import torch

    torch.set_num_threads(1)
    torch.set_num_threads = _ignore_number
    torch.set_num_interop_threads = _ignore_number
    start_derivatives()


def start_derivatives() -> None:
    """Start PyTorch's engine of derivatives without the threads of devices.

    At its first use, the engine starts a thread for each device, and it then refuses to work in a
    fork. A capture lets a build for CUDA believe in devices that the machine does not have.
    """
    import torch

    if not torch.cuda.is_available():
        with torch.enable_grad():
            torch.ones((), requires_grad=True).backward()  # type: ignore[no-untyped-call]


def _ignore_number(nthreads: int) -> None:
    """Accept a number of threads without effect."""


def seed_generators(seed: int) -> None:
    """Set the seed of the global generators of Python, numpy and torch."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # numpy accepts 32 bits
    torch.manual_seed(seed)


@contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """Set the seed of the global generators, and restore their states at the end."""
    import numpy as np
    import torch

    state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=()):
        seed_generators(seed)
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)


@contextmanager
def apply_state(spec: ModelSpec) -> Iterator[None]:
    """Run PyTorch in the state of the contract, by default `inference`; restore it at the end.

    `inference` disables gradients and the fused transformer path, as a file is neither trained nor
    fused by PyTorch. Without gradients, the fused path would replace layers by operators that no
    exporter translates. `plain` is the state of a plain call of `torch.onnx.export`: gradients are
    on, and the fused path remains as it is.
    """
    import torch

    mha = torch.backends.mha
    is_fused = mha.get_fastpath_enabled()
    is_plain = spec.export_state == "plain"
    mha.set_fastpath_enabled(is_fused and is_plain)
    try:
        with torch.set_grad_enabled(is_plain):
            yield
    finally:
        mha.set_fastpath_enabled(is_fused)
