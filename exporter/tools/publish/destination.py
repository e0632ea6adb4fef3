"""Where published folders go: never through a link, never over what somebody else put there.

In: paths. Out: nothing, or an `ExporterError`; folders put into place by one rename.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.tools.publish.published_folder import (
    MARKER,
    SUMS,
    Published,
    listed,
)


def checked_destination(dest: Path, build: Path) -> Path:
    """The folder, made where it is missing.

    Raises:
        ExporterError: ENVIRONMENT, where it is a link, a file, or the build folder or inside it.
    """
    if dest.is_symlink():
        raise ExporterError(ExitCode.ENVIRONMENT, f"{dest}: is a link; nothing goes through one")
    if dest.exists() and not dest.is_dir():
        raise ExporterError(ExitCode.ENVIRONMENT, f"{dest}: is no folder")
    if dest.resolve().is_relative_to(build.resolve()):
        message = f"{dest}: lies in the build folder, which is not for keeping; name another one"
        raise ExporterError(ExitCode.ENVIRONMENT, message)
    dest.mkdir(parents=True, exist_ok=True)
    return dest.resolve()


def why_occupied(final: Path) -> str:
    """Why nothing may be put at `final`; empty where nothing is there, or what we wrote."""
    for path in (final.parent, final):
        if path.is_symlink():
            return f"{path.name} is a link in {path.parent.name}; nothing goes through one"
        if path.exists() and not path.is_dir():
            return f"{path.name} is no folder in {path.parent.name}"
    if not final.exists():
        return ""
    try:
        Published.model_validate_json((final / MARKER).read_bytes())
        ours = listed(final) | {SUMS}
    except (OSError, ValidationError, ValueError):
        return "the folder there was not written by `exporter publish`; move it away"
    found = (path for path in final.rglob("*") if path.is_symlink() or not path.is_dir())
    names = {path.relative_to(final).as_posix() for path in found}
    if names - ours:
        return f"the folder there holds other files too: {min(names - ours)}; move them away"
    return ""


def place(staged: Path, final: Path) -> None:
    """Puts `staged` at `final`, in place of what is there.

    Raises:
        ExporterError: ENVIRONMENT, where something came there meanwhile that is not ours.
    """
    if why := why_occupied(final):
        raise ExporterError(ExitCode.ENVIRONMENT, f"{final.parent.name}/{final.name}: {why}")
    final.parent.mkdir(exist_ok=True)
    if not final.exists():
        staged.rename(final)
        return
    old = Path(tempfile.mkdtemp(prefix="old-", dir=staged.parent)) / final.name
    final.rename(old)
    try:
        staged.rename(final)
    except BaseException:
        old.rename(final)
        raise
    shutil.rmtree(old)
