"""Corrupt one file or folder of a build folder, as other programs and crashes do."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path


def cut(path: Path, draw: random.Random) -> None:
    """Truncate the file, as a full disk or a power failure does."""
    path.write_bytes(path.read_bytes()[: draw.randrange(max(path.stat().st_size, 1))])


def flip(path: Path, draw: random.Random) -> None:
    """Flip one bit."""
    data = bytearray(path.read_bytes() or b"x")
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def flip_unseen(path: Path, draw: random.Random) -> None:
    """Flip one bit and restore the modification time."""
    state = path.stat()
    flip(path, draw)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def append(path: Path, _: random.Random) -> None:
    """Append bytes."""
    with path.open("ab") as file:
        file.write(b"\0more")


def folder(path: Path, _: random.Random) -> None:
    """Replace the path by a folder."""
    _clear(path)
    path.mkdir()
    (path / "something").touch()


def file(path: Path, _: random.Random) -> None:
    """Replace the path by a file."""
    _clear(path)
    path.write_text("nothing of ours")


def missing(path: Path, _: random.Random) -> None:
    """Remove the path."""
    _clear(path)


def link(path: Path, draw: random.Random) -> None:
    """Move the path and create a symlink to it."""
    elsewhere = make_elsewhere(path) / f"{path.name}-{draw.randrange(1 << 40)}"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def dangling(path: Path, _: random.Random) -> None:
    """Replace the path by a dangling symlink."""
    _clear(path)
    path.symlink_to(make_elsewhere(path) / "nothing")


def endless(path: Path, _: random.Random) -> None:
    """Replace the path by a link to a device whose content does not end."""
    _clear(path)
    path.symlink_to("/dev/zero")


def pipe(path: Path, _: random.Random) -> None:
    """Replace the path by a pipe, which an ordinary reader waits for."""
    _clear(path)
    os.mkfifo(path)


def future(path: Path, _: random.Random) -> None:
    """Set a modification time in the future."""
    ahead = time.time() + 1e6
    os.utime(path, (ahead, ahead))


#: The numbers of JSON and TOML that no document may contain.
_NO_NUMBERS = {
    ".json": ("NaN", "Infinity", "-Infinity", "1e999"),
    ".toml": ("nan", "-inf", "1e999"),
}
_NUMBER = re.compile(r"(?<=\s)-?\d[\d.eE+-]*(?=[,\s\]}])")


def no_number(path: Path, draw: random.Random) -> None:
    """Replace one number of a document by one that is infinite or none; append to other files."""
    content = path.read_bytes().decode(errors="surrogateescape")
    numbers = [*_NUMBER.finditer(content)] if path.suffix in _NO_NUMBERS else []
    if not numbers:
        append(path, draw)
        return
    start, end = draw.choice(numbers).span()
    content = content[:start] + draw.choice(_NO_NUMBERS[path.suffix]) + content[end:]
    path.write_bytes(content.encode(errors="surrogateescape"))


def swapped(path: Path, draw: random.Random) -> None:
    """Swap the content with another file of the same suffix."""
    others = sorted(
        each for each in path.parent.iterdir() if each.suffix == path.suffix and each.is_file()
    )
    other = draw.choice(others)
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


ON_FILES = (
    *(cut, flip, flip_unseen, append, folder, missing, link, dangling, endless, pipe, future),
    *(no_number, swapped),
)
ON_FOLDERS = (file, missing, dangling, endless, pipe, future)


def make_elsewhere(path: Path) -> Path:
    """Create the folder for targets of symlinks, next to the build folder."""
    root = path.parents[len(path.parts) - path.parts.index("build") - 1]
    (root / "elsewhere").mkdir(exist_ok=True)
    return root / "elsewhere"


def corrupt(build: Path, draw: random.Random) -> tuple[str, str]:
    """Corrupt one path of the build folder. Return the action and the path."""
    paths = [path for path in sorted(build.rglob("*")) if not path.is_symlink()]
    path = draw.choice(paths)
    act = draw.choice(_acts(path))
    act(path, draw)
    return act.__name__, path.relative_to(build).as_posix()


SUFFIXES = (".onnx", ".json", ".pb", ".data", ".safetensors")


def corrupt_files(build: Path, draw: random.Random, count: int) -> None:
    """Corrupt built files by actions that a run does not refuse."""
    for _ in range(count):
        files = [path for path in sorted(build.rglob("*")) if path.is_file()]
        chosen = [path for path in files if path.suffix in SUFFIXES]
        path = draw.choice([path for path in chosen if path.name != "results.json"])
        draw.choice([act for act in ON_FILES if act is not folder])(path, draw)


def _acts(path: Path) -> tuple[Callable[[Path, random.Random], None], ...]:
    return ON_FOLDERS if path.is_dir() else ON_FILES


def _clear(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
