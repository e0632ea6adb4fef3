"""Mount small or read-only file systems as real full disks.

Input: an empty folder, or one to protect. Output: the disk, for the time of a `with` block. If
nothing can be mounted (root is necessary, and a container may forbid it), the test is skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Disk:
    """A file system in memory."""

    path: Path

    def grow(self) -> None:
        """Add free space."""
        _mount("-o", "remount,size=64m", str(self.path))


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Disk]:
    """Mount a disk of `size` KiB at `path`."""
    path.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}k", "exporter-test", str(path))
    try:
        yield Disk(path)
    finally:
        _unmount(path)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Mount the folder read-only, also for root."""
    _mount("--bind", str(path), str(path))
    try:
        _mount("-o", "remount,ro,bind", str(path))
        yield
    finally:
        _unmount(path)


def _mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"mount: {error}")
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


def _unmount(path: Path) -> None:
    # Lazily: a process that still reads it must not keep the mount.
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=True)
