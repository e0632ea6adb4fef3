"""Open the store that the environment or the project selects.

Input: a project, its limits and the environment. Output: a `Store`, or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter.build import BuildFolder
from exporter.cache.store import Store, StoreLimits
from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Project
from exporter.manifest.spec.store import NO_STORE

#: The store's folder, or `off`; it overrides the project's setting.
STORE_VARIABLE = "EXPORTER_STORE"
#: `1`, `yes` or `true` if the store must not be changed.
READ_ONLY_VARIABLE = "EXPORTER_STORE_READONLY"
_YES, _NO = ("1", "yes", "true"), ("", "0", "no", "false")


def open_store(
    project: Project,
    environment: Mapping[str, str],
    *,
    size: int | None = None,
    age: float | None = None,
) -> Store | None:
    """Return the store of the environment or of the project.

    Args:
        project: The project.
        environment: The environment variables.
        size: The maximum size in bytes, instead of the project's setting.
        age: The maximum age in seconds, instead of the project's setting.

    Returns:
        The store, or None if it is switched off.

    Raises:
        ExporterError: MANIFEST if an environment variable has an invalid value.
    """
    build = BuildFolder.from_project(project).path
    setting = environment.get(STORE_VARIABLE) or project.store
    if setting == NO_STORE:
        return None
    try:
        # The id of a model cannot begin with a dot.
        folder = Path(project.root) / Path(setting).expanduser() if setting else build / ".store"
    except RuntimeError:
        message = f"{setting}: the user has no home directory; write the full path"
        raise ExporterError(ExitCode.MANIFEST, message) from None
    limits = StoreLimits(
        size=project.store_size if size is None else size,
        age=project.store_age if age is None else age,
    )
    read_only = environment.get(READ_ONLY_VARIABLE, "")
    if read_only.lower() not in (*_YES, *_NO):
        message = f"{READ_ONLY_VARIABLE}: expected 1 or 0, got '{read_only}'"
        raise ExporterError(ExitCode.MANIFEST, message)
    return Store(
        folder,
        limits,
        is_read_only=read_only.lower() in _YES,
        build=build if folder.parent == build else None,
    )
