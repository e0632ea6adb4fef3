"""Disks that are full or read-only, for real: small file systems in memory, and mounts.

In: an empty folder, or one to protect. Out: the disk there, for the time of a `with` block. Where
nothing can be mounted (it takes root, and a container may forbid it to root), the test is skipped.
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
        """Makes room."""
        _mount("-o", "remount,size=64m", str(self.path))


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Disk]:
    """A disk of so many KiB at `path`."""
    path.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}k", "exporter-test", str(path))
    try:
        yield Disk(path)
    finally:
        _unmount(path)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """The folder, which nobody can write to, root included."""
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
    # Lazily: whatever still looks into it must not leave the mount behind.
    subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=True)
