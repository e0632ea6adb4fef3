"""Collect problems until all files are read, each of them once, in the order of files and lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from exporter.core.errors import Problem
from exporter.manifest.syntax.values import format_key, join_words

#: Models that a message lists by ID.
_MAX_MODELS = 3


@dataclass(frozen=True, slots=True)
class ProblemCollector:
    """Problems, each with the models that inherit it from `[defaults]` or a parent."""

    _models: dict[Problem, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[Problem]:
        """Yield the problems without the names of models."""
        return iter(self._models)

    def include(self, other: ProblemCollector) -> None:
        """Add the problems of another collector, with their models."""
        for problem in other:
            for model in other.find_models(problem) or ("",):
                self.add(problem, model=model)

    def find_models(self, problem: Problem) -> tuple[str, ...]:
        """Return the models that inherit a problem from another table."""
        return tuple(self._models.get(problem, ()))

    def add(self, problem: Problem, *, model: str = "") -> None:
        """Add a problem; `model` is set if the problem is in another table than the model's."""
        models = self._models.setdefault(problem, [])
        if model and model not in models:
            models.append(model)

    def list_problems(self) -> tuple[Problem, ...]:
        """Return all problems, ordered by file and line."""
        problems = []
        for problem, models in self._models.items():
            names = [format_key(("models", model)) for model in models]
            if len(names) > _MAX_MODELS:
                names[_MAX_MODELS:] = [f"{len(names) - _MAX_MODELS} more"]
            suffix = f" (for {join_words(names)})" if names else ""
            problems.append(replace(problem, message=f"{problem.message}{suffix}"))
        return tuple(sorted(problems, key=_sort_key))


def _sort_key(problem: Problem) -> tuple[str, int]:
    location = problem.location
    return (location.file, location.line or 0) if location else ("", 0)
