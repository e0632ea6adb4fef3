"""The guard of a script's code that builds its model: it trains nothing and changes no file.

`exporter record` writes a function that runs the user's script up to its export if nothing else
builds the model. What the script does before, such as training or writing a checkpoint, it would do
again in each export. Python reports its own writes to a hook. Writers in native code do not: those
of PyTorch and safetensors are replaced meanwhile, and on Linux the system refuses the rest.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from exporter.core.toml_table import read_setting
from exporter.records.record import Stage
from exporter.worker.process import landlock
from exporter.worker.process.failure import Failure
from exporter.worker.torch_private.file_writers import check_native_writers

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: The positions of the paths that an operation creates, replaces or removes.
_CHANGES = {
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "shutil.rmtree": (0,),
}
_FIX = "name a function or a class that builds the model without it as `source`"


def is_replay(source: object) -> bool:
    """Return whether a source is a function of `record` that runs a script."""
    names = getattr(source, "__globals__", {})
    return isinstance(names, dict) and {"BUILDS", "ARGUMENTS", "_Exported"} <= names.keys()


class _Guard:
    """Refuses writes below the project's root while it is active."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.real_root = root.resolve()
        build_path = self._root / read_setting(root, "build", "build")
        self.private = [
            path for path in build_path.glob(".*") if path.is_dir() and not path.is_symlink()
        ]
        self.refused: list[str] = []
        self.is_active = False

    def handle_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle an event of `sys.addaudithook`.

        Raises:
            PermissionError: if it is a write below the root.
        """
        if not self.is_active:
            return
        if event == "open":
            if isinstance(arguments[2], int) and arguments[2] & _WRITING:
                self.refuse(arguments[0])
        elif event in _CHANGES:
            for position in _CHANGES[event]:
                self.refuse(arguments[position])

    def refuse(self, path: object) -> None:
        """Raise an error if a path is below the root and not private.

        Raises:
            PermissionError: if it is.
        """
        if not isinstance(path, str | bytes | os.PathLike):  # a descriptor
            return
        named = Path(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - it may have any type
        if named.parent.name == "__pycache__":
            return
        real = Path(os.path.realpath(named.parent)) / named.name
        for each, root in ((named, self._root), (real, self.real_root), (real, self._root)):
            is_private = any(map(each.is_relative_to, self.private))
            if each.is_relative_to(root) and not is_private:
                self.refused.append(each.relative_to(root).as_posix())
                raise PermissionError(errno.EACCES, "is not written by a replay", str(named))


@contextmanager
def refuse_work(root: Path) -> Iterator[None]:
    """Refuse writes, as `refuse_writes` does, and each step of an optimizer.

    Raises:
        Failure: Stage `source`, at such a step or after a refused write.
    """

    def refuse(optimizer: torch.optim.Optimizer, *_: object) -> None:
        message = f"the script trains before its export ({type(optimizer).__name__}), and an "
        raise Failure(Stage.SOURCE, f"{message}export must not train again; {_FIX}")

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        with refuse_writes(root):
            yield
    finally:
        handle.remove()


@contextmanager
def refuse_writes(root: Path) -> Iterator[None]:
    """Refuse writes below the project's root in the block, and by native code also afterwards.

    Folders may be created. The private folders of the build folder remain writable.

    Raises:
        Failure: Stage `source`, if the block ends with an exception after a refused write; the
            message has the name of the file.
    """
    guard = _Guard(root)
    sys.addaudithook(guard.handle_event)
    if guard.real_root.is_relative_to(Path(tempfile.gettempdir()).resolve()):
        # New files directly in a parent of the root would be refused.
        runs = [path for path in guard.private if path.name.startswith((".work", ".record-"))]
        tempfile.tempdir = tempfile.mkdtemp(dir=runs[0] if runs else None)
    landlock.protect_folder(root, guard.private)
    guard.is_active = True
    try:
        with check_native_writers(guard.refuse):
            yield
    except BaseException as error:
        guard.is_active = False
        if guard.refused:
            message = f"{guard.refused[0]}: the script writes it before its export, and a replay "
            raise Failure(Stage.SOURCE, f"{message}must not change it; {_FIX}") from error
        raise
    finally:
        guard.is_active = False
