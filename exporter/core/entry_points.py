"""Plugins that installed distributions register under an entry-point group."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

#: Group of runtimes: the name is the value of `runtime` in a device table.
RUNTIME_GROUP = "exporter.runtimes"


class PluginError(Exception):
    """A plugin cannot be imported or has the wrong type."""


@cache
def find_plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of the group by name, the first on the path for each name."""
    plugins: dict[str, EntryPoint] = {}
    for entry_point in entry_points(group=group):
        plugins.setdefault(entry_point.name, entry_point)
    return plugins


def load_plugin(entry_point: EntryPoint) -> object:
    """Import the object that the entry point names.

    Raises:
        PluginError: if the import fails.
    """
    try:
        return entry_point.load()
    except Exception as error:
        distribution = entry_point.dist.name if entry_point.dist else "unknown"
        raise PluginError(
            f"plugin {entry_point.name} ({distribution}): cannot import {entry_point.value}: "
            f"{type(error).__name__}: {error}"
        ) from error
