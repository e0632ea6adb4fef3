"""Cores, memory and git.

In: how many models an export runs at once. Out: findings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from exporter.tools.doctor.diagnosis import Diagnosis, note, ok

_GIB = 1 << 30
#: What one model of moderate size takes with its float64 twin.
_LITTLE_MEMORY = 3 * _GIB
#: Built files of a few models.
_LITTLE_DISK = _GIB
_SECONDS = 20


def examine_machine(root: Path, jobs: int, environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Looks at what the machine has.

    Args:
        root: The project's folder.
        jobs: Models at work at once.
        environment: Of the git that is started.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    here = f"{cores} cores, {memory / _GIB:.1f} GiB of memory: {jobs} at work at once"
    if memory < _LITTLE_MEMORY:
        yield note("machine", f"{here}; large models may run out of memory")
    else:
        yield ok("machine", here)
    free = shutil.disk_usage(root).free
    disk = f"{free / _GIB:.1f} GiB are free"
    yield note("disk", disk) if free < _LITTLE_DISK else ok("disk", disk)
    yield _git(root, environment)


def _git(root: Path, environment: Mapping[str, str]) -> Diagnosis:
    needs = "`gate --against`, and since when a cell is red, need it"
    git = shutil.which("git")
    if git is None:
        return note("git", f"not installed: {needs}")
    try:
        found = subprocess.run(
            [git, "-C", str(root), "rev-parse", "--is-inside-work-tree"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return note("git", f"cannot be run: {error}")
    if found.returncode:
        return note("git", f"the project is in no repository: {needs}")
    return ok("git", "the project is in a repository")
