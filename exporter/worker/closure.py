"""Which of the project's files the model was made from.

In: what Python has loaded, and the data files of the manifest. Out: each file under the project's
root with its hash, sorted, and the listing of each folder that holds a module.

Looked at after the work, so that an import inside `forward` counts too. Installed packages are
told by `packages.py`, our own modules by the fingerprint's `tool.exporter`.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from exporter.fingerprint import LISTING, file_digest
from exporter.record import Source


def loaded_sources(root: Path, since: Path, data: Iterable[str] = ()) -> tuple[Source, ...]:
    """Every module file of the project that is loaded now, and the folders that they are in.

    Args:
        root: The project's root.
        since: A file that was written when the work began: what changed after it may not be what
            was loaded, and gets no hash.
        data: Files, relative to the root, that the model was loaded from and that are no code.
    """
    root = root.resolve()
    began = since.stat().st_ctime_ns
    modules = set(_module_files(root))
    listings = {path.parent / LISTING for path in modules}
    files = modules | {root / name for name in data}
    return tuple(
        Source(
            file=path.relative_to(root).as_posix(),
            sha256="" if _changed_at(path) > began else file_digest(path),
        )
        for path in sorted(files | listings)
    )


def _module_files(root: Path) -> Iterator[Path]:
    installed = [
        Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib", "stdlib")
    ]
    others = (Path(__file__).resolve().parents[1], *installed)
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        path = _resolved(name) if isinstance(name, str) else None
        if path is None or not path.is_relative_to(root):
            continue
        if not any(path.is_relative_to(folder) for folder in others):
            yield path


@cache
def _resolved(name: str) -> Path | None:
    """A module's file; None where torch gave the module a bare name that is no file.

    Asked for thousands of modules after every cell, and slow to find.
    """
    return Path(name).resolve() if Path(name).is_absolute() else None


def _changed_at(path: Path) -> int:
    """When the file changed last, by the kernel's clock; of a listing nobody asks."""
    try:
        return 0 if path.name == LISTING else path.stat().st_ctime_ns
    except OSError:
        return 0  # it is gone: its digest is empty as it is
