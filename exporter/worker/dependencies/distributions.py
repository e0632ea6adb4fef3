"""Installed distributions that a model imports, without the packages of the exporter itself."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import distributions, packages_distributions

from exporter.cache.fingerprint import DISTRIBUTIONS, read_package_state

#: Python's search path before the code of a model can change it.
_PATH = tuple(sys.path)


def list_loaded_packages() -> dict[str, str]:
    """Return the state of every installed distribution with a loaded module, by name.

    A package is omitted if it is in the folder of another package, such as those of setuptools,
    because other processes do not find it.
    """
    owners = map_module_owners()
    loaded = {name.partition(".")[0] for name in list(sys.modules)}
    names = {owner for name in loaded for owner in owners.get(name, ())}
    names.difference_update(DISTRIBUTIONS, ("onnx-exporter-matrix",))
    return {
        name: read_package_state(name)
        for name in sorted(names)
        if any(True for _ in distributions(name=name, path=list(_PATH)))
    }


@cache
def map_module_owners() -> dict[str, list[str]]:
    """Return the distributions of each top-level module; cached, because the search is slow."""
    return dict(packages_distributions())
