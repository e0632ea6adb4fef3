"""The figures of all models over commits, from the versions of the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.core.git import Commit
from exporter.core.text import format_bytes
from exporter.records.baseline import Baseline, CellOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """The worst figures of the cells of a model; None if no cell has the figure."""

    green: int
    cells: int
    error: float | None = None
    """As a multiple of the limit."""
    bytes: int | None = None
    nodes: int | None = None
    latency: float | None = None
    """As a multiple of PyTorch's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """The accepted state at one commit."""

    commit: Commit
    models: Mapping[str, ModelFigures]

    @property
    def green(self) -> int:
        """The number of green cells."""
        return sum(figures.green for figures in self.models.values())


def build_trend(versions: Iterable[tuple[Commit, Baseline]]) -> tuple[TrendPoint, ...]:
    """Return one point for each version of the baseline."""
    points = []
    for commit, baseline in versions:
        by_model: dict[str, list[CellOutcome]] = {}
        for outcome in baseline.cells:
            by_model.setdefault(outcome.cell.model, []).append(outcome)
        models = {model: _summarize(outcomes) for model, outcomes in by_model.items()}
        points.append(TrendPoint(commit=commit, models=models))
    return tuple(points)


def list_steps(trend: Sequence[TrendPoint], model: str) -> tuple[tuple[str, ...], ...]:
    """Return the commits at which a figure of the model changed, the newest first.

    Returns:
        The commit, the green cells, error, size, nodes and latency, as texts.
    """
    steps: list[tuple[str, ...]] = []
    before: ModelFigures | None = None
    for point in trend:
        figures = point.models.get(model)
        if figures and figures != before:
            steps.insert(0, _format_step(point.commit, figures))
        before = figures
    return tuple(steps)


def _summarize(outcomes: Sequence[CellOutcome]) -> ModelFigures:
    known = [outcome.figures for outcome in outcomes if outcome.figures]
    errors = [each.error for each in known if each.error is not None]
    latencies = [each.latency for each in known if each.latency is not None]
    return ModelFigures(
        green=sum(outcome.status.is_green for outcome in outcomes),
        cells=len(outcomes),
        error=max(errors, default=None),
        bytes=max((each.bytes for each in known), default=None),
        nodes=max((each.nodes for each in known), default=None),
        latency=max(latencies, default=None),
    )


def _format_step(commit: Commit, figures: ModelFigures) -> tuple[str, ...]:
    return (
        str(commit),
        f"{figures.green} of {figures.cells}",
        "" if figures.error is None else f"{figures.error:g}",
        "" if figures.bytes is None else format_bytes(figures.bytes),
        "" if figures.nodes is None else str(figures.nodes),
        "" if figures.latency is None else f"{figures.latency:g}",
    )
