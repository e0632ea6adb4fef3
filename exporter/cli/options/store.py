"""Which store a command uses: the project's setting, the environment, and an option.

In: a project and the environment. Out: a `Store`, or None.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from exporter.build import BuildFolder
from exporter.cache.store import Store, StoreLimits
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Project
from exporter.manifest.schema.fields import Memory
from exporter.manifest.schema.store import Age
from exporter.manifest.spec.store import NO_STORE

#: The store's folder, or `off`; goes before the project's setting.
PLACE = "EXPORTER_STORE"
#: Whether the store is only read: `1`, `yes` or `true`.
READ_ONLY = "EXPORTER_STORE_READONLY"
_YES, _NO = ("1", "yes", "true"), ("", "0", "no", "false")


def open_store(project: Project) -> Store | None:
    """The store that the environment or the project names; None where there is to be none.

    Raises:
        ExporterError: MANIFEST, where the environment says what means nothing.
    """
    folder = resolve_store_folder(project)
    if folder is None:
        return None
    limits = StoreLimits(size=project.store_size, age=project.store_age)
    own = BuildFolder.from_project(project).path
    build = own if folder.parent == own else None
    return Store(folder, limits, is_read_only=_is_read_only(), build=build)


def open_limited_store(project: Project, size: int | None, age: float | None) -> Store | None:
    """The same store with limits of the command line in place of the project's, where it has any.

    Raises:
        ExporterError: MANIFEST, where the environment says what means nothing.
    """
    said = {"store_size": size, "store_age": age}
    update = {name: value for name, value in said.items() if value is not None}
    return open_store(project.model_copy(update=update))


def limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--store-size` and `--store-age`; the command gets bytes and seconds, or None."""
    size = "What the store may take, such as 5GiB.  [default: `store_size`, or 10GiB]"
    age = "How long what nobody uses is kept, such as 30d.  [default: `store_age`, or 90d]"
    function = click.option("--store-age", metavar="AGE", callback=_read(Age), help=age)(function)
    return click.option("--store-size", metavar="SIZE", callback=_read(Memory), help=size)(function)


def _read(field: Any) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Reads an option as the project's setting is read."""

    def read(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else TypeAdapter(field).validate_python(value)
        except ValidationError as error:
            raise click.BadParameter(error.errors()[0]["msg"].partition(", ")[2]) from None

    return read


def resolve_store_folder(project: Project) -> Path | None:
    """Where the store is, whether it is there or not."""
    said = os.environ.get(PLACE) or project.store
    if said == NO_STORE:
        return None
    if not said:
        # No model's ID begins with a dot.
        return BuildFolder.from_project(project).path / ".store"
    try:
        return Path(project.root) / Path(said).expanduser()
    except RuntimeError:  # nobody's home
        raise ExporterError(ExitCode.MANIFEST, f"{said}: there is no home directory") from None


def _is_read_only() -> bool:
    said = os.environ.get(READ_ONLY, "")
    if said.lower() not in (*_YES, *_NO):
        message = f"{READ_ONLY}: expected 1 or 0, got '{said}'"
        raise ExporterError(ExitCode.MANIFEST, message)
    return said.lower() in _YES
