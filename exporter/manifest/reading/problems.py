"""Collects problems until all files are read: none hides another, none is told twice.

In: problems as they are found. Out: all of them in the order of files and lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from exporter.core.errors import Problem
from exporter.manifest.syntax.message_format import format_key, join_words

_NAMED = 3


@dataclass(frozen=True, slots=True)
class ProblemCollector:
    """Problems found so far, each with the models that met it through `[defaults]` or a parent."""

    _found: dict[Problem, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, problem: Problem, *, model: str = "") -> None:
        """Notes a problem; `model` is the one that met it where it stands with another table."""
        models = self._found.setdefault(problem, [])
        if model and model not in models:
            models.append(model)

    def problems(self) -> tuple[Problem, ...]:
        """Everything, by file and line."""
        found = (
            replace(problem, message=f"{problem.message}{_through(models)}")
            for problem, models in self._found.items()
        )
        return tuple(sorted(found, key=_place))


def _through(models: Iterable[str]) -> str:
    names = [format_key(("models", model)) for model in models]
    if len(names) > _NAMED:
        names[_NAMED:] = [f"{len(names) - _NAMED} more"]
    return f" (for {join_words(names)})" if names else ""


def _place(problem: Problem) -> tuple[str, int]:
    location = problem.location
    return (location.file, location.line or 0) if location else ("", 0)
