"""The SHA-256 of a file.

Input: the path of a file. Output: its digest in hex.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the file in hex, read in blocks.

    Raises:
        OSError: if the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
