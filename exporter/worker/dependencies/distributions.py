"""Which installed distributions the model was made with, besides the tools.

In: what Python has loaded. Out: name -> version and digest, as `fingerprint.package_state` gives
them later without loading anything.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import distributions, packages_distributions

from exporter.cache.fingerprint import DISTRIBUTIONS, read_package_state

#: Where Python looked before the code of a model could add to it.
_PATH = tuple(sys.path)


def list_loaded_packages() -> dict[str, str]:
    """Every installed distribution of which a module is loaded now, by name.

    A package that brings others along in a folder of its own, as setuptools does, is enough by
    itself: no other process finds those.
    """
    owners = _owners()
    loaded = {name.partition(".")[0] for name in list(sys.modules)}
    found = {owner for name in loaded for owner in owners.get(name, ())}
    found.difference_update(DISTRIBUTIONS, ("onnx-exporter-matrix",))
    return {name: read_package_state(name) for name in sorted(found) if _is_installed(name)}


def _is_installed(name: str) -> bool:
    return any(True for _ in distributions(name=name, path=list(_PATH)))


def cache_module_owners() -> None:
    """Looks for the distributions now, for this process and its forks."""
    _owners()


@cache
def _owners() -> dict[str, list[str]]:
    """Top-level module -> distributions; the same for all of a process, and slow to find."""
    return dict(packages_distributions())
