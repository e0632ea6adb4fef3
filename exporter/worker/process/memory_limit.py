"""The memory limit of a job, and the records of cells that exceed the resources."""

from __future__ import annotations

import sys
from pathlib import Path

from exporter.core.text import is_out_of_memory, is_out_of_resources, memory_limit_message
from exporter.manifest import ModelSpec
from exporter.records.record import Record, Status


def limit_memory(spec: ModelSpec) -> None:
    """Limit the address space of this process to its current size plus `spec.memory`.

    Call it after the import of torch, which reserves gigabytes. A model on a GPU has no
    limit, because the driver reserves address space for all memory of the machine.
    """
    if spec.memory is None or sys.platform != "linux" or spec.export_device != "cpu":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
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
