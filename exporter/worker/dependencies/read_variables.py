"""Environment variables that the code of a model reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from exporter.processes.environment import CACHES, WITHHELD, hash_variable, is_fixed
from exporter.worker.dependencies.callers import Caller, find_caller

_Environment: Any = type(os.environ)


class TrackedEnvironment(_Environment):  # type: ignore[misc]  # Python has no public name for it
    """The environment of this process, which records each name that is read."""

    def __getitem__(self, name: str) -> Any:
        """Return the value and record its name."""
        _READS.add(name)
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names and record them."""
        for name in super().__iter__():
            _READS.add(name)
            yield name


class VariableReads:
    """The names of variables that were read since `watch`."""

    def __init__(self) -> None:
        # Workers import this module before torch, which sets variables.
        self._first = dict(os.environ)
        self._by_project: dict[str, None] = {}
        self._absent: dict[str, None] = {}
        self._withheld = frozenset(os.environ.get(WITHHELD, "").split(",")) - {""}
        self._is_watching = False

    def watch(self) -> None:
        """Record names from now on."""
        os.environ.__class__ = TrackedEnvironment
        self._is_watching = True

    def add(self, name: object) -> None:
        """Record a name that is read.

        A locale that the project lists is a part of the fingerprint.
        """
        if not self._is_watching or not isinstance(name, str) or is_fixed(name):
            return
        if name in self._withheld:
            self._absent[name] = None
        elif find_caller() is Caller.PROJECT:
            self._by_project[name] = None

    def read_states(self, files: Iterable[str], root: Path) -> dict[str, str]:
        """Return the states of the variables that the project's code read, by sorted name.

        A state is that before the code of the model could set the variable. If the job read a file
        in a cache, another cache may have another one. The copy of a project on the host of a
        cluster may be in a cache itself. The paths have no links.
        """
        names = set(self._by_project) - {WITHHELD}
        folders = [str(Path.home() / ".cache"), *filter(None, map(self._first.get, CACHES))]
        paths = [f"{os.path.realpath(folder)}/" for folder in folders]
        caches = tuple(folder for folder in paths if not str(root).startswith(folder))
        names |= CACHES if any(file.startswith(caches) for file in files) else set()
        return {name: hash_variable(name, self._first.get(name)) for name in sorted(names)}

    def list_withheld(self) -> tuple[str, ...]:
        """Return the names that were read although workers do not receive them."""
        return tuple(sorted(self._absent))


_READS = VariableReads()


def watch_variables() -> VariableReads:
    """Record the reads of environment variables from now on, once for this process."""
    _READS.watch()
    return _READS
