"""What else can write into a build folder, as small acts on one of its files or folders.

In: a path and a source of chance. Out: the path as something left it that is none of ours.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path


def cut(path: Path, draw: random.Random) -> None:
    """A disk that was full, or a machine that lost power."""
    path.write_bytes(path.read_bytes()[: draw.randrange(max(path.stat().st_size, 1))])


def flip(path: Path, draw: random.Random) -> None:
    """One bit is another one."""
    data = bytearray(path.read_bytes() or b"x")
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def flip_unseen(path: Path, draw: random.Random) -> None:
    """The same, and the file claims that it is as old as it was."""
    state = path.stat()
    flip(path, draw)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def append(path: Path, _: random.Random) -> None:
    """Something is written behind the end."""
    with path.open("ab") as file:
        file.write(b"\0more")


def folder(path: Path, _: random.Random) -> None:
    """A folder stands in its place."""
    _clear(path)
    path.mkdir()
    (path / "something").touch()


def file(path: Path, _: random.Random) -> None:
    """A file stands in its place."""
    _clear(path)
    path.write_text("nothing of ours")


def missing(path: Path, _: random.Random) -> None:
    """It is gone."""
    _clear(path)


def link(path: Path, draw: random.Random) -> None:
    """It was moved elsewhere, and a link leads there."""
    elsewhere = elsewhere_of(path) / f"{path.name}-{draw.randrange(1 << 40)}"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def dangling(path: Path, _: random.Random) -> None:
    """A link leads nowhere."""
    _clear(path)
    path.symlink_to(elsewhere_of(path) / "nothing")


def future(path: Path, _: random.Random) -> None:
    """The clock was ahead when it was written."""
    ahead = time.time() + 1e6
    os.utime(path, (ahead, ahead))


def swapped(path: Path, draw: random.Random) -> None:
    """It trades places with another of its kind."""
    others = sorted(
        each for each in path.parent.iterdir() if each.suffix == path.suffix and each.is_file()
    )
    other = draw.choice(others)
    kept = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(kept)


ON_FILES = (cut, flip, flip_unseen, append, folder, missing, link, dangling, future, swapped)
ON_FOLDERS = (file, missing, dangling, future)


def elsewhere_of(path: Path) -> Path:
    """Where links lead: beside the build folder."""
    root = path.parents[len(path.parts) - path.parts.index("build") - 1]
    (root / "elsewhere").mkdir(exist_ok=True)
    return root / "elsewhere"


def vandalise(build: Path, draw: random.Random) -> tuple[str, str]:
    """One act on anything that lies in the build folder; the answer says what and where."""
    places = [path for path in sorted(build.rglob("*")) if not path.is_symlink()]
    path = draw.choice(places)
    act = draw.choice(_acts(path))
    act(path, draw)
    return act.__name__, path.relative_to(build).as_posix()


def vandalise_files(build: Path, draw: random.Random, count: int) -> None:
    """Acts on what was built; none that a run refuses to work with."""
    for _ in range(count):
        files = [path for path in sorted(build.rglob("*")) if path.is_file()]
        chosen = [path for path in files if path.suffix in (".onnx", ".json", ".pb", ".data")]
        path = draw.choice([path for path in chosen if path.name != "results.json"])
        draw.choice(ON_FILES)(path, draw)


def _acts(path: Path) -> tuple[Callable[[Path, random.Random], None], ...]:
    return ON_FOLDERS if path.is_dir() else ON_FILES


def _clear(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
