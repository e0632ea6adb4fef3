"""Write files atomically: a reader sees the complete file or the previous one."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError

_UNFINISHED = re.compile(r"\..+\.([1-9][0-9]*)\.fresh")


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 with unchanged newlines; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content`; replace a link at `path`.

    Raises:
        ExporterError: ENVIRONMENT if the file cannot be written; the old file is unchanged.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.fresh")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        # Mode "x" fails if another process created a file or a link at this path.
        with fresh.open("xb") as file:
            file.write(content)
        fresh.replace(path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        message = f"{path}: cannot be written: {error.strerror}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def remove_unfinished_files(folder: Path) -> None:
    """Remove the temporary files in `folder` that killed processes left."""
    for path in folder.glob(".*.fresh"):
        match = _UNFINISHED.fullmatch(path.name)
        if match and not _is_process_alive(int(match[1])):
            with suppress(OSError):  # a remaining file does no harm
                path.unlink()


def _is_process_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # on Windows, os.kill would end the process
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # the process belongs to another user
    return True
