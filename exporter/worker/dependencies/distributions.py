"""Installed distributions that a model imports, without the packages of the exporter itself."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from exporter.cache.fingerprint import DISTRIBUTIONS, read_loaded_state


def list_loaded_packages(root: Path) -> dict[str, str]:
    """Return the state of every installed distribution with a loaded module, by name.

    A package is omitted if it is in the folder of another package, such as those of setuptools,
    because other processes do not find it.
    """
    owners = map_module_owners()
    loaded = {name.partition(".")[0] for name in list(sys.modules)}
    names = {owner for name in loaded for owner in owners.get(name, ())}
    names.difference_update(DISTRIBUTIONS, ("onnx-exporter-matrix",))
    states = {name: read_loaded_state(name, root) for name in sorted(names)}
    return {name: state for name, state in states.items() if state}


@cache
def map_module_owners() -> dict[str, list[str]]:
    """Return the distributions of each top-level module; cached, because the search is slow."""
    return dict(packages_distributions())
