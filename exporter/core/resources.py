"""Amounts of memory, and how running out of it shows, or of disk, or of what else a machine has.

In: text that PyTorch, ONNX Runtime, Python or C++ left behind. Out: whether an allocation failed,
or the machine gave out otherwise.
"""

from __future__ import annotations

import re

from exporter.core.text_format import format_byte_limit

#: Python's, PyTorch's, the C library's, C++'s and ONNX Runtime's own words for it.
_FAILED = re.compile(
    r"MemoryError|(can't|cannot|failed to|unable to) allocate (memory|\S+ (.i)?b)|not enough memory"
    r"|(bad|std::bad_)[ _]?alloc|out of memory",
    re.IGNORECASE,
)
#: The C library's words for a full or failing disk, and for too many files or processes.
_GAVE_OUT = re.compile(
    r"No space left on device|Disk quota exceeded|Too many open files|Input/output error"
    r"|Read-only file system|Resource temporarily unavailable|File too large"
)


def is_out_of_memory(text: str) -> bool:
    """Whether somebody says in `text` that an allocation failed."""
    return _FAILED.search(text) is not None


def is_out_of_resources(text: str) -> bool:
    """Whether somebody says in `text` that the machine could not go on, whatever the model is."""
    return is_out_of_memory(text) or _GAVE_OUT.search(text) is not None


def memory_limit_message(limit: int) -> str:
    """What is said of a job that needs more than its limit."""
    return f"needs more than the {format_byte_limit(limit)} that `memory` allows"
