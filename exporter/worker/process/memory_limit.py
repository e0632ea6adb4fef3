"""The limit on what a job may take, and the cells that need more than there is.

In: a contract, and records as they were found. Out: the limit set on this process; records whose
failure is that memory ran out, or the disk is full, as `killed`: another try may end otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.core.resources import is_out_of_memory, is_out_of_resources, memory_limit_message
from exporter.manifest import ModelSpec
from exporter.records.record import Record, Status


def limit_memory(spec: ModelSpec) -> None:
    """Limits the address space of this process to what it has now and `spec.memory`.

    Set when torch is loaded: its libraries alone reserve gigabytes. Where the model is on a GPU
    there is no limit, since the driver reserves address space for all of the machine's memory.
    """
    if spec.memory is None or sys.platform != "linux" or spec.export_device != "cpu":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    wanted = pages * resource.getpagesize() + spec.memory
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


def mark_resource_failures(record: Record, spec: ModelSpec) -> Record:
    """The record as it is, or `killed` where what went wrong is that the machine gave out."""
    message = record.message
    if not record.status.is_red or not is_out_of_resources(message):
        return record
    if spec.memory is not None and is_out_of_memory(message):
        message = f"{memory_limit_message(spec.memory)}: {message}"
    return record.model_copy(update={"status": Status.KILLED, "message": message})
