"""Large weights in a mapped file: the kernel can drop their pages, and forks share them.

A weight keeps its address, so views, tied weights and references from Python remain as they are.
Only the memory below it changes: its pages are those of a temporary file without a name. A model
that writes into a weight gets copies of these pages, and the file keeps the values.
"""

from __future__ import annotations

import copy
import ctypes
import mmap
import os
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from exporter.core.system import IS_LINUX
from exporter.worker.torch_private.internals import is_fake

#: Models with fewer bytes of weights stay in memory: to write them would only take time.
LARGE_MODEL = 1 << 29
#: Smaller storages stay in memory, because they may share their pages with other values.
_LARGE_STORAGE = 1 << 20
_MAP_FIXED = 0x10


#: Every moved storage. Its memory is not freed, so no other value gets its address.
_MOVED: list[torch.UntypedStorage] = []


@contextmanager
def map_weights() -> Iterator[Callable[[torch.nn.Module], None]]:
    """Move the weights of large models that are built inside, after the first half GB.

    Inside, writes to a weight go to the file. Afterwards, they go to copies of the pages.

    Yields:
        A function that moves the weights of a model that are still in memory.
    """
    if not IS_LINUX:
        yield lambda _: None
        return
    file = _WeightFile()
    hook = register_module_parameter_registration_hook(file.receive)
    try:
        yield file.store
    finally:
        hook.remove()
        file.protect()


class _WeightFile:
    """A temporary file with the weights of the models that are built in a context."""

    def __init__(self) -> None:
        self._registered = 0
        self._fd = -1
        self._end = 0
        self._distances: set[int] = set()

    def receive(self, _: object, __: str, weight: torch.Tensor | None) -> None:
        """Move a parameter that a module registers, if the model is large."""
        if weight is not None and _has_memory(weight):
            self._registered += weight.nbytes
            if self._registered > LARGE_MODEL:
                self._move([weight.untyped_storage()])

    def store(self, model: torch.nn.Module) -> None:
        """Move the weights of a large model that are still in memory."""
        weights = [each for each in (*model.parameters(), *model.buffers()) if _has_memory(each)]
        storages = {each.data_ptr(): each for each in map(torch.Tensor.untyped_storage, weights)}
        if sum(storage.nbytes() for storage in storages.values()) > LARGE_MODEL:
            self._move(list(storages.values()))

    def protect(self) -> None:
        """Separate the memory from the file, so that no write in a fork reaches this process."""
        if self._fd < 0:
            return
        inode = str(os.fstat(self._fd).st_ino)
        for mapping in _read_mappings():
            # Also memory that was freed and serves another value now: its pages are the same.
            is_own = mapping.start - mapping.offset in self._distances
            if is_own and mapping.mode == "rw-s" and mapping.inode == inode:
                length = mapping.end - mapping.start
                _map(mapping.start, length, self._fd, mapping.offset, mmap.MAP_PRIVATE)
        os.close(self._fd)

    def _move(self, storages: list[torch.UntypedStorage]) -> None:
        """Write the whole pages of storages to the file and map them at the same addresses."""
        memory = _list_anonymous_memory()
        for storage in storages:
            start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
            index = bisect_right(memory, (start, sys.maxsize)) - 1
            if end - start < _LARGE_STORAGE or index < 0 or end > memory[index][1]:
                continue
            with suppress(OSError):  # on a full disk, the weight stays in memory
                if self._fd < 0:
                    with tempfile.TemporaryFile() as file:
                        self._fd = os.dup(file.fileno())
                _write(self._fd, start, end, self._end)
                _map(start, end - start, self._fd, self._end, mmap.MAP_SHARED)
                self._distances.add(start - self._end)
                _MOVED.append(storage)
                self._end += end - start


def copy_in_float64(model: torch.nn.Module) -> torch.nn.Module:
    """Return the same as `copy.deepcopy(model).double()`, with the weights in a file.

    Each weight is cast alone, so the memory of the process grows by the small weights only.

    Raises:
        OSError: If the disk is full, or this system cannot map a temporary file.
    """
    if not IS_LINUX:
        raise OSError("a temporary file cannot be mapped")
    weights = [
        weight
        for weight in {id(each): each for each in (*model.parameters(), *model.buffers())}.values()
        # The copy of another weight has more than values, such as attributes or its own class.
        if type(weight) in (torch.Tensor, torch.nn.Parameter)
        and not vars(weight)
        and (isinstance(weight, torch.nn.Parameter) or not weight.requires_grad)
        and weight.is_floating_point()
        and weight.is_contiguous()
        and weight.nbytes >= _LARGE_STORAGE
    ]
    # Every copy begins at a page: kernels may compute other bits at other alignments.
    step = mmap.PAGESIZE // torch.float64.itemsize
    starts = list(accumulate((-(-each.numel() // step) * step for each in weights), initial=0))
    memo: dict[int, object] = {}
    if weights:
        with tempfile.NamedTemporaryFile() as file:
            # On a full disk, this raises an error, and a write to the mapped memory a signal.
            os.posix_fallocate(file.fileno(), 0, starts[-1] * torch.float64.itemsize)
            size = starts[-1]
            values = torch.from_file(file.name, shared=True, size=size, dtype=torch.float64)
        for weight, start in zip(weights, starts, strict=False):
            wide = values[start : start + weight.numel()].view(weight.shape)
            wide.copy_(weight.detach())
            if isinstance(weight, torch.nn.Parameter):
                wide = torch.nn.Parameter(wide, weight.requires_grad)
            memo[id(weight)] = wide
    return copy.deepcopy(model, memo).double()


def _has_memory(weight: torch.Tensor) -> bool:
    if is_lazy(weight) or is_fake(weight) or weight.layout is not torch.strided:
        return False
    try:
        return weight.device.type == "cpu" and weight.untyped_storage().data_ptr() != 0
    except (RuntimeError, NotImplementedError):  # a subclass without a storage of its own
        return False


class _Mapping(NamedTuple):
    """A part of the memory of this process."""

    start: int
    end: int
    mode: str
    offset: int
    inode: str


def _read_mappings() -> list[_Mapping]:
    mappings = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, mode, offset, _, inode, *_ = line.split(maxsplit=5)
        start, end = (int(each, 16) for each in addresses.split("-"))
        mappings.append(_Mapping(start, end, mode, int(offset, 16), inode))
    return mappings


def _list_anonymous_memory() -> list[tuple[int, int]]:
    """Return the addresses of memory that belongs to no file and to this process alone."""
    ranges: list[tuple[int, int]] = []
    try:
        mappings = _read_mappings()
    except OSError:  # without `/proc`, each weight stays where it is
        return []
    for each in mappings:
        if each.mode == "rw-p" and each.inode == "0":
            is_next = ranges and ranges[-1][1] == each.start
            ranges.append((ranges.pop()[0] if is_next else each.start, each.end))
    return ranges


def _write(fd: int, start: int, end: int, offset: int) -> None:
    view = memoryview((ctypes.c_char * (end - start)).from_address(start))
    done = 0
    while done < len(view):
        done += os.pwrite(fd, view[done : done + (1 << 26)], offset + done)


def _map(address: int, length: int, fd: int, offset: int, flags: int) -> None:
    """Replace the pages at an address by those of a file."""
    function = ctypes.CDLL(None, use_errno=True).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    result = function(address, length, protection, flags | _MAP_FIXED, fd, offset)
    if result != address:
        raise OSError(ctypes.get_errno(), "the pages of a weight cannot be mapped")
