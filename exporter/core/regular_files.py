"""Read files that a worker or another program wrote, without waiting and without links.

A model can replace a file by a pipe, a device, a link or a sparse file of many gigabytes. Opening a
pipe waits for a writer, and reading a device may never end.
"""

from __future__ import annotations

import errno
import os
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG

#: Bytes of a file about one cell or one job. Real ones have less than 1 MiB.
CELL_LIMIT = 1 << 26
#: Bytes of a file about all cells of a project, or with the digests of all weights of a model.
PROJECT_LIMIT = 1 << 30
#: Bytes of a tensor in the format of ONNX, which protobuf limits.
TENSOR_LIMIT = (1 << 31) - 1

# Windows has none of these flags, no pipes in folders, and no links without privileges.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def open_regular_file(path: Path, *, may_be_link: bool = False) -> BufferedReader:
    """Open a file for reading.

    Args:
        path: The file.
        may_be_link: Whether the path may be a link to a file.

    Raises:
        OSError: if the file cannot be read or is no regular file.
    """
    state = path.stat() if may_be_link else path.lstat()  # opening a device can have effects
    if S_ISREG(state.st_mode):
        descriptor = os.open(path, os.O_RDONLY | _NO_WAIT | (0 if may_be_link else _NO_LINK))
        if S_ISREG(os.fstat(descriptor).st_mode):  # the path can change between both calls
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a regular file", str(path))


def read_regular_file(path: Path, limit: int) -> bytes:
    """Return the content of a file.

    Args:
        path: The file, not a link.
        limit: The largest number of bytes.

    Raises:
        OSError: if the file cannot be read, is no regular file or is larger than the limit.
    """
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        # `read` allocates the requested number of bytes, so the limit is no argument.
        content = file.read(size + 1) if size <= limit else b""
        if len(content) > size:  # the file grows
            content += file.read(limit + 1 - len(content))
    if max(size, len(content)) > limit:
        text = f"has {size} bytes, but at most {limit} are possible"
        raise OSError(errno.EFBIG, text, str(path))
    return content


def empty_regular_file(path: Path) -> None:
    """Remove the content of a file.

    Raises:
        OSError: if the file cannot be written or is no regular file.
    """
    if not S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    descriptor = os.open(path, os.O_WRONLY | _NO_WAIT | _NO_LINK)
    try:
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
