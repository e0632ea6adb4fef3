"""The environments in a folder, with their sizes."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from exporter.environments.installation import STAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEnvironment:
    """An environment that was created."""

    folder: Path
    requirements: tuple[str, ...]
    age: float
    """Seconds since its last use."""

    @property
    def key(self) -> str:
        """The key of its definition."""
        return self.folder.name

    def measure_size(self) -> int:
        """Return its bytes without links."""
        files = (Path(base, name) for base, _, names in os.walk(self.folder) for name in names)
        return sum(path.lstat().st_size for path in files if not path.is_symlink())


def list_environments(folder: Path) -> tuple[StoredEnvironment, ...]:
    """Return all complete environments in the order of their names."""
    environments = []
    for stamp in sorted(folder.glob(f"*/{STAMP}")):
        try:
            requirements = tuple(json.loads(stamp.read_text())["requirements"])
            used = max(path.stat().st_mtime for path in (stamp, _find_lock(stamp.parent)))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it is being created or removed
        environment = StoredEnvironment(
            folder=stamp.parent, requirements=requirements, age=time.time() - used
        )
        environments.append(environment)
    return tuple(environments)


def mark_as_used(folder: Path) -> None:
    """Store the time of the last use of an environment; see `StoredEnvironment.age`.

    The time is that of its lock, because a change of the environment itself would count as one.
    """
    _find_lock(folder).touch()


def remove_environment(environment: StoredEnvironment) -> None:
    """Remove an environment that no process creates at the moment."""
    lock = _find_lock(environment.folder)
    with FileLock(lock):
        shutil.rmtree(environment.folder, ignore_errors=True)
    lock.unlink(missing_ok=True)


def _find_lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
