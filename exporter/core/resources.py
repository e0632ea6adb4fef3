"""Detect in messages of other programs that memory, disk or another resource ran out."""

from __future__ import annotations

import re

from exporter.core.text_format import format_byte_limit

#: Messages of Python, PyTorch, the C library, C++ and ONNX Runtime about failed allocations.
_OUT_OF_MEMORY = re.compile(
    r"MemoryError|(can't|cannot|failed to|unable to) allocate (memory|\S+ (.i)?b)|not enough memory"
    r"|(bad|std::bad_)[ _]?alloc|out of memory",
    re.IGNORECASE,
)
#: Messages of the C library about full or failing disks, and too many files or processes. A
#: read-only file system is no such message: the build folder is writable, and a sandbox has others.
_OUT_OF_RESOURCES = re.compile(
    r"No space left on device|Disk quota exceeded|Too many open files|Input/output error"
    r"|Resource temporarily unavailable|File too large"
)


def is_out_of_memory(text: str) -> bool:
    """Return True if `text` reports a failed allocation."""
    return _OUT_OF_MEMORY.search(text) is not None


def is_out_of_resources(text: str) -> bool:
    """Return True if `text` reports that the machine ran out of memory, disk or processes."""
    return is_out_of_memory(text) or _OUT_OF_RESOURCES.search(text) is not None


def memory_limit_message(limit: int) -> str:
    """Return the message for a job that exceeded its memory limit."""
    return f"needs more than the {format_byte_limit(limit)} that `memory` allows"
