"""Text files by fresh file and rename: a reader sees all of a file or nothing, never a half.

In: a path and its text. Out: the file, or an `ExporterError` that says why there is none.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError

_UNFINISHED = re.compile(r"\..+\.([1-9][0-9]*)\.fresh")


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, newlines as they are; a link at `path` is replaced, not followed.

    Raises:
        ExporterError: ENVIRONMENT, where the file cannot be written; the old one is then unharmed.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.fresh")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        # "x" refuses whatever lies there, a planted link too.
        with fresh.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        fresh.replace(path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        message = f"{path}: cannot be written: {error.strerror}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def remove_unfinished_files(folder: Path) -> None:
    """Removes what processes that were killed had begun to write in `folder`."""
    for path in folder.glob(".*.fresh"):
        found = _UNFINISHED.fullmatch(path.name)
        if found and not _is_alive(int(found[1])):
            with suppress(OSError):  # nothing of it is in the way
                path.unlink()


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # there, to ask is to end it
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it is another user's
    return True
