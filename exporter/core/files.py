"""Read, write, hash and remove files that another program may have changed or made inaccessible.

A model can replace a file by a pipe, a device, a link or a sparse file of many gigabytes. Opening a
pipe waits for a writer, and reading a device may never end.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from types import TracebackType

from exporter.core.errors import ExitCode, ExporterError

#: Bytes of a text that a person wrote, such as a source of Python.
TEXT_LIMIT = 1 << 24
#: Bytes of a file about one cell or one job. Real ones have less than 1 MiB.
CELL_LIMIT = 1 << 26
#: Bytes of a file about all cells of a project, or with the digests of all weights of a model.
PROJECT_LIMIT = 1 << 30
#: Bytes of a tensor in the format of ONNX, which protobuf limits.
TENSOR_LIMIT = (1 << 31) - 1

#: A flag without an effect on files: it distinguishes imports, and reads of this package, from
#: other readers of a source.
QUIET_FLAG = os.O_NOCTTY
_NO_WAIT = os.O_NONBLOCK | os.O_CLOEXEC
_NO_LINK = os.O_NOFOLLOW


def open_regular_file(path: Path, *, may_be_link: bool = False) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: if the file cannot be read or is no regular file.
    """
    state = path.stat() if may_be_link else path.lstat()  # opening a device can have effects
    if stat.S_ISREG(state.st_mode):
        flags = os.O_RDONLY | QUIET_FLAG | _NO_WAIT
        descriptor = os.open(path, flags | (0 if may_be_link else _NO_LINK))
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # the path can change between both calls
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a regular file", str(path))


def read_regular_file(path: Path, limit: int, *, may_be_link: bool = False) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: if the file cannot be read, is no regular file or is larger than the limit.
    """
    with open_regular_file(path, may_be_link=may_be_link) as file:
        size = os.fstat(file.fileno()).st_size
        # `read` allocates the requested number of bytes, so the limit is no argument.
        content = file.read(size + 1) if size <= limit else b""
        if len(content) > size:  # the file grows
            content += file.read(limit + 1 - len(content))
    if max(size, len(content)) > limit:
        text = f"has {size} bytes, but at most {limit} are possible"
        raise OSError(errno.EFBIG, text, str(path))
    return content


#: Bytes of one copy. Ctrl-C is handled between two, and a slow network drive copies them in time.
_COPY_CHUNK = 1 << 23


def copy_file(source: Path, target: Path) -> None:
    """Create `target` with the content of `source`; btrfs and XFS share the blocks.

    Raises:
        OSError: if `source` cannot be read, or `target` exists or cannot be written.
    """
    with open_regular_file(source) as reader, target.open("xb") as writer:
        # A system or a file system may lack the call. Both files keep the position.
        with suppress(OSError, AttributeError):
            while os.copy_file_range(reader.fileno(), writer.fileno(), _COPY_CHUNK):
                pass
        while chunk := reader.read(_COPY_CHUNK):
            writer.write(chunk)


def leads_out_of_checkout(path: Path) -> bool:
    """Return whether links lead from a path in a repository of git to one outside of it."""
    checkout = next((p for p in path.absolute().parents if os.path.lexists(p / ".git")), None)
    target = os.path.realpath(path)
    return checkout is not None and not Path(target).is_relative_to(os.path.realpath(checkout))


def is_absent(path: Path) -> bool:
    """Return whether a file, or the target of its link, is known not to exist."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def require_inside_checkout(path: Path) -> None:
    """Raise an error if links lead from a path in a repository of git to one outside of it.

    Raises:
        ExporterError: ENVIRONMENT.
    """
    if leads_out_of_checkout(path):
        message = f"{path}: a symlink leads out of the repository; replace it by a folder or file"
        raise ExporterError(ExitCode.ENVIRONMENT, message)


def empty_regular_file(path: Path) -> None:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    descriptor = os.open(path, os.O_WRONLY | _NO_WAIT | _NO_LINK)
    try:
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


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
        # `mkdir` reports "File exists" if the folder is a file.
        code = errno.ENOTDIR if path.parent.is_file() else error.errno
        message = f"{path}: cannot be written: {os.strerror(code or 0)}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def remove_unfinished_files(folder: Path) -> None:
    """Remove the temporary files in `folder` that killed processes left."""
    for path in folder.glob(".*.fresh"):
        match = _UNFINISHED.fullmatch(path.name)
        if match and not _is_process_alive(int(match[1])):
            with suppress(OSError):  # a remaining file does no harm
                path.unlink()


def _is_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # the process belongs to another user
    return True


_ErrorInfo = tuple[type[BaseException], BaseException, TracebackType]

_FOLDER_ACCESS = stat.S_IRWXU
_FILE_ACCESS = stat.S_IRUSR | stat.S_IWUSR


#: Folders below a folder of the program, which creates three. The system has no access to paths of
#: more than 4096 bytes, and Python cannot remove a thousand nested folders.
_MAX_DEPTH = 8
#: The first characters of the name of a folder that was nested more deeply.
NESTED_PREFIX = ".nested-"


def make_accessible(folder: Path, *, is_recursive: bool = True) -> None:
    """Give this user access to a folder or file, as far as the system permits it.

    A folder that is nested too deeply is moved to the top.
    """
    paths = [(folder, 0)]
    while paths:
        path, depth = paths.pop()
        with suppress(OSError):
            mode = path.lstat().st_mode
            is_folder = stat.S_ISDIR(mode)
            needed = 0
            if is_folder:
                needed = _FOLDER_ACCESS
            elif stat.S_ISREG(mode):
                needed = _FILE_ACCESS
            if mode & needed != needed:
                path.chmod(stat.S_IMODE(mode) | needed)
            if is_folder and depth > _MAX_DEPTH:
                path, depth = path.rename(tempfile.mkdtemp(prefix=NESTED_PREFIX, dir=folder)), 0
            if is_folder and is_recursive:
                paths += [(each, depth + 1) for each in path.iterdir()]


def walk_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files below a folder; those that cannot be reached are omitted."""
    folders = [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    with suppress(OSError):  # removed by another process
                        yield Path(entry.path), entry.stat(follow_symlinks=False)


def find_files(folder: Path, name: str) -> list[Path]:
    """Return the sorted paths with a name in a folder and below it, without following links.

    Folders that cannot be reached are omitted, such as those with a path of 5,000 characters.
    """
    paths, folders = [], [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.name == name:
                    paths.append(Path(entry.path))
    return sorted(paths)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, if it exists.

    Raises:
        ExporterError: ENVIRONMENT, if the system refuses it: with the path and its owner.
    """
    if not os.path.lexists(folder):
        return
    make_accessible(folder)

    def refuse(_function: object, name: str, reason: _ErrorInfo) -> None:
        text = os.strerror(getattr(reason[1], "errno", None) or 0)
        message = f"{name}: cannot be removed: {text}{describe_owner(Path(name))}"
        raise ExporterError(ExitCode.ENVIRONMENT, message)

    shutil.rmtree(folder, onerror=refuse)


def describe_owner(path: Path) -> str:
    """Return the end of a message about a refused access, or "" if the owner is this user."""
    # Removing a file needs access to its folder.
    for each in (path, path.parent):
        with suppress(OSError):
            owner = each.lstat().st_uid
            if owner != os.geteuid():
                return (
                    f"; {each} belongs to {_name_user(owner)}: remove it as that user, or name "
                    "another folder as `build` in [tool.exporter]"
                )
    return ""


def list_inaccessible(folder: Path) -> Iterator[Path]:
    """Yield the paths in a folder that this user cannot read, and folders it cannot change."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        yield folder
        return
    for path in paths:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        needed = os.R_OK | (os.W_OK | os.X_OK if stat.S_ISDIR(mode) else 0)
        if not os.access(path, needed, effective_ids=os.access in os.supports_effective_ids):
            yield path
        elif stat.S_ISDIR(mode):
            yield from list_inaccessible(path)


def _name_user(user: int) -> str:
    try:
        import pwd

        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user {user}"


def hash_file(path: Path) -> str:
    """Return the SHA-256 of the file in hex, read in blocks."""
    with open_regular_file(path, may_be_link=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
