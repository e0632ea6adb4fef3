"""The note of the pages that were written last, to skip a report that is up to date."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

import exporter
from exporter.cache.states import hash_source
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.core.frozen_model import FrozenModel
from exporter.jobs import write_json


class _Note(FrozenModel):
    """The content of the note."""

    key: str
    pages: dict[str, str]
    """Digest by name, relative to the reports folder."""


def find_packaged_templates() -> Path:
    """Return the folder inside the wheel, or next to the package in a checkout."""
    package = Path(exporter.__path__[0])
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


def compute_key(texts: Iterable[str], folders: Iterable[Path]) -> str:
    """Return a digest of the texts and of all files in the folders, which need not exist."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    for folder in folders:
        paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
        for path in paths:
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(folder)}:{hash_source(path)};".encode())
    return digest.hexdigest()


def is_up_to_date(note: Path, key: str, reports: Path) -> bool:
    """Return whether the pages were written with this key and are unmodified."""
    last = _read_note(note)
    return last is not None and last.key == key and are_unmodified(note, reports)


def are_unmodified(note: Path, reports: Path) -> bool:
    """Return whether the pages are those of the last report, for any key."""
    last = _read_note(note)
    return last is not None and all(
        hash_source(reports / name) == digest for name, digest in last.pages.items()
    )


def save_up_to_date_key(note: Path, key: str, reports: Path, pages: Iterable[str]) -> None:
    """Write the note for pages that were just written."""
    digests = {name: hash_source(reports / name) for name in sorted(pages)}
    write_json(note, _Note(key=key, pages=digests))


def list_written_pages(note: Path) -> tuple[str, ...]:
    """Return the names of the pages of the last report; empty without a note."""
    last = _read_note(note)
    return tuple(last.pages) if last else ()


def _read_note(note: Path) -> _Note | None:
    try:
        return _Note.model_validate_json(read_regular_file(note, PROJECT_LIMIT))
    except (OSError, ValidationError):
        return None
