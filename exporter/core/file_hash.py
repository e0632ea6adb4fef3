"""The SHA-256 of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from exporter.core.regular_files import open_regular_file


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the file in hex, read in blocks.

    Raises:
        OSError: if the file cannot be read or is no regular file, such as a pipe.
    """
    with open_regular_file(path, may_be_link=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
