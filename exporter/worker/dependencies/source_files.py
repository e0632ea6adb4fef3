"""Files of the project that a model was built from.

Input: the loaded modules, and the data files of the manifest. Output: each file below the
project's root with its hash, sorted, and the listing of each folder with a module.

The worker lists the files when its work is done, so an import inside `forward` is included.
Installed packages are in `distributions.py`, and this tool's modules are in the fingerprint
(`tool.exporter`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exporter.cache.fingerprint import LISTING, hash_source, read_loaded_state
from exporter.records.record import Source
from exporter.worker.dependencies.project_files import find_project_path

#: Nanoseconds by which the two clocks may drift apart in a job if a service corrects one.
_DRIFT = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """The start time of a job by two clocks."""

    changed: int
    """The kernel's time in nanoseconds: `st_ctime_ns` of a file that was written then."""
    offset: int
    """The wall clock minus the monotonic clock in nanoseconds."""

    @classmethod
    def measure(cls, file: Path) -> JobStart:
        """Return the start of a job that begins now, right after `file` was written."""
        return cls(changed=file.stat().st_ctime_ns, offset=_measure_offset())

    def has_changed(self, path: Path) -> bool:
        """Return True if the file changed after the start; always False for a listing.

        If the wall clock was set back during the job, a changed file may have a time before the
        start. The start time is set back by the same amount then.
        """
        set_back = max(0, self.offset - _measure_offset() - _DRIFT)
        try:
            return path.name != LISTING and path.stat().st_ctime_ns > self.changed - set_back
        except OSError:
            return False  # the hash of a missing file is empty


def digest_external_libraries(root: Path, since: JobStart, paths: Iterable[Path]) -> dict[str, str]:
    """Return the state of libraries outside of the project, by their path from its root."""
    names = {os.path.relpath(path, root.resolve()): path for path in paths}
    return {
        Path(name).as_posix(): "" if since.has_changed(path) else read_loaded_state(name, root)
        for name, path in names.items()
    }


def digest_loaded_sources(
    root: Path, since: JobStart, data: Iterable[str] = ()
) -> tuple[Source, ...]:
    """Return the loaded module files of the project, their folders and the data files.

    Args:
        root: The project's root.
        since: The start of the job. If a file changed later, its hash is empty, because the
            loaded content may be another.
        data: Data files of the model, relative to the root.
    """
    root = root.resolve()
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = (find_project_path(file, root) for file in files if isinstance(file, str))
    modules = {root / path for path in paths if path}
    listings = {path.parent / LISTING for path in modules}
    return tuple(
        Source(
            file=path.relative_to(root).as_posix(),
            sha256="" if since.has_changed(path) else hash_source(path),
        )
        for path in sorted(modules | listings | {root / name for name in data})
    )


def _measure_offset() -> int:
    # If the process waits between the two reads, the difference is too small.
    return max(time.time_ns() - time.monotonic_ns() for _ in range(3))
