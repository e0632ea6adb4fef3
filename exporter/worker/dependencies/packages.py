"""The installed packages of a record: the loaded ones, and those that its code searched for.

A package that is missing or not loaded can change a result, too: `try: import xformers`,
`find_spec("triton")` and `metadata.version("acme")` select the code of a model.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.metadata import Distribution, packages_distributions
from pathlib import Path
from typing import Any

from exporter.cache.states import (
    DISTRIBUTIONS,
    MODULE_PREFIX,
    VERSION_PREFIX,
    read_distribution,
    read_loaded_state,
)
from exporter.core.files import open_regular_file
from exporter.core.text import DISTRIBUTION
from exporter.worker.dependencies.opened_files import IMPORT_SYSTEM
from exporter.worker.dependencies.source_files import (
    Group,
    classify_path,
    find_model_file,
    find_package_module,
    is_model_code,
    list_module_files,
    resolve_path,
    resolve_root,
)

#: Distributions that this program and torch load, and that change no file and no verdict. They
#: count if a file of the model mentions one of their modules.
_HARMLESS = frozenset(
    {
        *("annotated-types", "colorama", "filelock", "packaging", "pydantic", "pydantic_core"),
        *("setuptools", "tomli", "tqdm", "typing-inspection", "typing_extensions"),
    }
)
#: Each file outside of packages and of the system is in this folder.
_ANY_ROOT = Path("/")


class _Searches(MetaPathFinder):
    """The modules and distributions that the code of a model searched for; it finds none."""

    def __init__(self) -> None:
        self.root = Path()
        self.modules: dict[str, None] = {}
        self.distributions: dict[str, None] = {}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Record a name. A module of a package is a part of it, unless it is a namespace."""
        parent = sys.modules.get(fullname.rpartition(".")[0])
        is_outermost = path is None or getattr(parent, "__file__", None) is None
        if is_outermost and self.is_requested():
            self.modules[fullname] = None

    def add_distribution(self, name: object) -> None:
        """Record the name of a distribution; None is a list of all, which depends on no name."""
        if isinstance(name, str) and self.is_requested():
            self.distributions[name] = None

    def forget_module(self, name: str) -> bool:
        """Forget a module; return whether its search was recorded."""
        return self.modules.pop(name, "unknown") is None

    def forget_distribution(self, name: str) -> bool:
        """Forget a distribution; return whether its search was recorded."""
        return self.distributions.pop(name, "unknown") is None

    def is_requested(self) -> bool:
        """Return True if the code of a model searches, not torch, a tool or Python itself."""
        frame = inspect.currentframe()
        while frame := frame.f_back if frame else None:
            file = frame.f_code.co_filename
            if file != __file__ and not file.startswith(IMPORT_SYSTEM):
                return _is_of_model(file, resolve_root(self.root))
        return False


#: Those of this process.
SEARCHES = _Searches()


def watch_searches(root: Path) -> None:
    """Record the modules and distributions that the code of a model searches for from now on."""
    SEARCHES.root = root
    if SEARCHES in sys.meta_path:
        return
    map_module_owners()  # `is_requested` needs it, and its imports would be searches, without end
    sys.meta_path.insert(0, SEARCHES)
    discover = Distribution.discover.__func__  # type: ignore[attr-defined]  # of a class method

    def record(cls: type[Distribution], /, **filters: Any) -> Iterable[Distribution]:
        context = filters.get("context")
        SEARCHES.add_distribution(filters.get("name", getattr(context, "name", None)))
        distributions: Iterable[Distribution] = discover(cls, **filters)
        return distributions

    Distribution.discover = classmethod(record)  # type: ignore[method-assign,assignment]


def list_loaded_packages(root: Path, read: Iterable[str] = ()) -> dict[str, str]:
    """Return the states of the distributions that a model loaded or searched for, by name.

    `read`: Files that the model or a child process read; those of packages count as loaded.

    A package is omitted if it is in the folder of another package, such as those of setuptools,
    because other processes do not find it.
    """
    owners = map_module_owners()
    names: set[str] = set()
    for module in {name.partition(".")[0] for name in list(sys.modules)} & owners.keys():
        names.update(each for each in owners[module] if _is_used(module, each, root))
    names.update(name for file in read for name in owners.get(find_package_module(file), ()))
    items = [f"{VERSION_PREFIX}{name}" for name in SEARCHES.distributions]
    for module in [each for each in SEARCHES.modules if each not in sys.modules]:
        names.update(owners.get(module, ()))
        if module not in owners:
            items.append(f"{MODULE_PREFIX}{module}")
    if harmless := names & _HARMLESS:
        folder = resolve_root(root)
        # A fork server has found that thousands of files are no model's below any root.
        files = (
            each
            for each in list_module_files()
            if find_model_file(each, _ANY_ROOT) or each.startswith(folder)
        )
        mentioned = {name for file in files for name in _find_mentions(file, folder)}
        names -= harmless - mentioned
    names.difference_update(DISTRIBUTIONS, (DISTRIBUTION,))
    states = {name: read_loaded_state(name, root) for name in sorted((*names, *items))}
    return {name: state for name, state in states.items() if state}


def _is_used(module: str, distribution: str, root: Path) -> bool:
    """Return False if a loaded module is not from the distribution that owns its name.

    The files of a checkout are dependencies, also if its package is installed. The place of an
    editable installation counts, because it selects the checkout.
    """
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None) or next(iter(getattr(loaded, "__path__", ())), "")
    if not file or read_distribution(distribution, "")[1]:
        return True
    path, folder = resolve_path(file).path, resolve_root(root)
    if classify_path(path, folder) is Group.FOREIGN:
        return True
    # A folder of `PYTHONPATH` with modules and their metadata is one of packages, too.
    owner = Path(str(metadata.distribution(distribution).locate_file(""))).resolve()
    return Path(path).is_relative_to(owner) and not owner.is_relative_to(folder)


@cache  # each cell needs it for thousands of files
def _is_of_model(file: str, root: str) -> bool:
    """Return True for a file of the model, also in a package, unless that is harmless itself."""
    name = find_model_file(file, Path(root))
    module = name.partition("/")[0].partition(".")[0]
    owners = map_module_owners().get(module) if file.endswith(f"-packages/{name}") else ()
    is_harmless = owners and _HARMLESS.issuperset(owners)
    return not is_harmless and is_model_code(file, Path(root))


def _find_mentions(file: str, root: str) -> frozenset[str]:
    """Return the harmless distributions with a module whose name a file of a model contains."""
    return _read_mentions(file) if _is_of_model(file, root) else frozenset()


# Cached for a file only, because a process without forks has a root for each job.
@cache
def _read_mentions(file: str) -> frozenset[str]:
    if not Path(file).is_file():
        return frozenset()
    with open_regular_file(Path(file), may_be_link=True) as opened:
        content = opened.read()
    return frozenset(owner for module, owner in _list_harmless_modules() if module in content)


@cache
def _list_harmless_modules() -> tuple[tuple[bytes, str], ...]:
    return tuple(
        (module.encode(), owner)
        for module, owners in map_module_owners().items()
        for owner in _HARMLESS.intersection(owners)
    )


def preload_states() -> None:
    """Resolve the files of the loaded modules and read the states of their packages.

    Forks of this process need not do it, and have the states of the versions that are loaded.
    """
    list_loaded_packages(_ANY_ROOT)


@cache
def map_module_owners() -> dict[str, list[str]]:
    """Return the distributions of each top-level module; cached, because the search is slow."""
    return dict(packages_distributions())
