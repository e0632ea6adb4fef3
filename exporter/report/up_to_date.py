"""Whether the pages that stand are those that would be written now.

In: everything that pages are made from. Out: a key, and a note in the build folder of the key and
the pages that were written under it. A page that somebody changed or removed is written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from exporter.cache.fingerprint import file_digest
from exporter.core.frozen_model import FrozenModel
from exporter.jobs.job_folder import write_value


class _Standing(FrozenModel):
    """What was written last."""

    key: str
    pages: dict[str, str]
    """Digest by name, relative to the reports folder."""


def key_of(texts: Iterable[str], folders: Iterable[Path]) -> str:
    """A digest of texts and of every file in the folders, which need not exist."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(f"{path.relative_to(folder)}:{file_digest(path)};".encode())
    return digest.hexdigest()


def is_up_to_date(note: Path, key: str, reports: Path) -> bool:
    """Whether pages were written under the key, and are still as they were."""
    known = _read(note)
    return known is not None and known.key == key and _are(known, reports)


def are_unmodified(note: Path, reports: Path) -> bool:
    """Whether the pages are those that were written here last, under whatever key."""
    known = _read(note)
    return known is not None and _are(known, reports)


def save_up_to_date_key(note: Path, key: str, reports: Path, pages: Iterable[str]) -> None:
    """Notes what was just written."""
    digests = {name: file_digest(reports / name) for name in sorted(pages)}
    write_value(note, _Standing(key=key, pages=digests))


def pages_of(note: Path) -> tuple[str, ...]:
    """The names of the pages that were written here last."""
    known = _read(note)
    return tuple(known.pages) if known else ()


def _read(note: Path) -> _Standing | None:
    try:
        return _Standing.model_validate_json(note.read_bytes())
    except (OSError, ValidationError):
        return None


def _are(known: _Standing, reports: Path) -> bool:
    return all(file_digest(reports / name) == digest for name, digest in known.pages.items())
