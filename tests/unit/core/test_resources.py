"""Messages of other programs about missing memory, disk or processes."""

from __future__ import annotations

import errno
import os

import pytest

from exporter.core.text import is_out_of_memory, is_out_of_resources, memory_limit_message


@pytest.mark.parametrize(
    "text",
    [
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes",
        "OSError: [Errno 12] Cannot allocate memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "Failed to allocate memory for requested buffer of size 1024",
        "bad allocation",
    ],
)
def test_messages_about_failed_allocations_are_detected(text: str) -> None:
    assert is_out_of_memory(text)
    assert is_out_of_resources(text)


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.EIO,
        errno.EAGAIN,
        errno.EFBIG,
        errno.ENOMEM,
    ],
)
def test_messages_about_missing_resources_are_detected(number: int) -> None:
    assert is_out_of_resources(f"OSError: {OSError(number, os.strerror(number))}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "OSError: [Errno 30] Read-only file system: 'a'",
        "memory format channels_last",
        "a bad location",
        "KeyError: 'memory'",
    ],
)
def test_other_messages_are_not(text: str) -> None:
    assert not is_out_of_memory(text)
    assert not is_out_of_resources(text)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EISDIR])
def test_a_missing_file_is_not_a_missing_resource(number: int) -> None:
    assert not is_out_of_resources(f"OSError: {OSError(number, os.strerror(number))}")


def test_a_memory_limit_has_the_notation_of_the_manifest() -> None:
    assert "8GiB" in memory_limit_message(8 << 30)
