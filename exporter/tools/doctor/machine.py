"""The cores, the memory, the disk and git."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from exporter.tools.doctor.protocol import Diagnosis

_GIB = 1 << 30
#: Bytes that one model of moderate size needs with its float64 model.
_LITTLE_MEMORY = 3 * _GIB
#: Bytes that the files of a few models need.
_LITTLE_DISK = _GIB
_GIT_TIMEOUT = 20  # seconds


def examine_machine(root: Path, jobs: int, environment: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Return diagnoses of the machine.

    Args:
        root: The project's folder.
        jobs: The number of workers that run at the same time.
        environment: The environment of git.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = f"{cores} cores, {memory / _GIB:.1f} GiB of memory, {jobs} parallel jobs"
    if memory < _LITTLE_MEMORY:
        yield Diagnosis.note("machine", f"{machine}; large models may run out of memory")
    else:
        yield Diagnosis.ok("machine", machine)
    free = shutil.disk_usage(root).free
    disk = f"{free / _GIB:.1f} GiB are free"
    yield (Diagnosis.note if free < _LITTLE_DISK else Diagnosis.ok)("disk", disk)
    yield _examine_git(root, environment)


def _examine_git(root: Path, environment: Mapping[str, str]) -> Diagnosis:
    need = "`gate --against` and the dates of failures need it"
    git = shutil.which("git")
    if git is None:
        return Diagnosis.note("git", f"not installed: {need}")
    try:
        process = subprocess.run(
            [git, "-C", str(root), "rev-parse", "--is-inside-work-tree"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Diagnosis.note("git", f"cannot be run: {error}")
    if process.returncode:
        return Diagnosis.note("git", f"the project is not in a repository: {need}")
    return Diagnosis.ok("git", "the project is in a repository")
