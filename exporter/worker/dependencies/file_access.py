"""One access of a process to a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum

from exporter.core.files import QUIET_FLAG
from exporter.core.system import IS_LINUX

#: A file without a name in a folder, as `tempfile.TemporaryFile` creates it; only Linux has it.
_UNNAMED = os.O_TMPFILE if IS_LINUX else -1
#: A name for a rule of the sandbox. A model that opens a name can read the file by it later.
_NAME = os.O_PATH | QUIET_FLAG if IS_LINUX else -1


class Lister(StrEnum):
    """Who opened a folder."""

    PROCESS = ""
    """The worker or a fork of it, whose listings the audit hook sees, too."""
    PROGRAM = "program"
    """A program that it started."""
    IMPORT = "import"
    """An import of such a Python."""


@dataclass(frozen=True, slots=True)
class Access:
    """A path that the process opened for the first time with these flags."""

    path: str
    """Absolute; "" if the tracer could not read it."""
    flags: int
    lister: Lister = Lister.PROCESS

    @property
    def is_write(self) -> bool:
        """Whether the call replaces the content or only writes."""
        only_writes = self.flags & os.O_ACCMODE == os.O_WRONLY
        is_emptied = bool(self.flags & (os.O_TRUNC | os.O_EXCL))  # O_EXCL creates the file
        return only_writes or is_emptied or self._is_unnamed_file

    @property
    def is_name_for_sandbox(self) -> bool:
        """Whether this tool opened it and reads nothing of it."""
        return self.flags & _NAME == _NAME

    @property
    def is_folder(self) -> bool:
        return bool(self.flags & os.O_DIRECTORY) and not self._is_unnamed_file

    @property
    def _is_unnamed_file(self) -> bool:
        return self.flags & _UNNAMED == _UNNAMED
