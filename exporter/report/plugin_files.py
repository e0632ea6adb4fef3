"""Files that another distribution adds to the report; docs/extending.md has an example.

Equal inputs must give equal files: `exporter check` and the no-op check do not call the function of
a package if the manifest, the results and the code of its top-level package are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest import Manifest
from exporter.records.record import RunRecord

GROUP = "exporter.reports"
#: The folder of all plugins in the reports folder.
PLUGINS = "plugins"
#: A plugin or file name that is safe in a path on every system.
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]*"

RenderFunction = Callable[[Manifest, RunRecord], Mapping[str, object]]


def render_plugin_files(manifest: Manifest, run: RunRecord) -> dict[str, str | bytes]:
    """Return the files of all installed plugins, by name relative to the reports folder.

    Raises:
        ExporterError: ENVIRONMENT, if a plugin cannot be loaded or returns an invalid file name.
    """
    files: dict[str, str | bytes] = {}
    for plugin in _list_plugins():
        try:
            render: RenderFunction = plugin.load()
        except (ImportError, AttributeError) as error:
            raise _report_problem(plugin, f"cannot be loaded: {error}") from error
        for name, content in render(manifest, run).items():
            if not re.fullmatch(NAME_PATTERN, name):
                raise _report_problem(plugin, f"invalid file name '{name}'; use a plain name")
            if not isinstance(content, str | bytes):
                kind = type(content).__name__
                raise _report_problem(plugin, f"'{name}' is {kind}; return str or bytes")
            files[f"{PLUGINS}/{plugin.name}/{name}"] = content
    return files


def describe_plugins() -> str:
    """Return the names and versions of all plugins; pages depend on them."""
    return ";".join(
        f"{plugin.name}={plugin.value} {plugin.dist.version if plugin.dist else ''}"
        for plugin in _list_plugins()
    )


def list_plugin_folders() -> list[Path]:
    """Return the folders with the code of all plugins, without importing them."""
    folders: list[Path] = []
    for plugin in _list_plugins():
        spec = find_spec(plugin.module.partition(".")[0])
        if spec and spec.submodule_search_locations:
            folders += [Path(folder) for folder in spec.submodule_search_locations]
        elif spec and spec.origin:
            folders.append(Path(spec.origin))
    return folders


def _list_plugins() -> list[EntryPoint]:
    """Return all plugins by name.

    Raises:
        ExporterError: ENVIRONMENT, if a name is invalid or used twice.
    """
    plugins = sorted(entry_points(group=GROUP), key=lambda plugin: plugin.name)
    for index, plugin in enumerate(plugins):
        if not re.fullmatch(NAME_PATTERN, plugin.name):
            raise _report_problem(plugin, "invalid name; use letters, digits and `_.-`")
        if index and plugin.name == plugins[index - 1].name:
            raise _report_problem(plugin, "two distributions use this name; remove one")
    return plugins


def _report_problem(plugin: EntryPoint, problem: str) -> ExporterError:
    source = f" of {plugin.dist.name}" if plugin.dist else ""
    return ExporterError(ExitCode.ENVIRONMENT, f"report plugin '{plugin.name}'{source}: {problem}")
