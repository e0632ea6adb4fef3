"""The check of the metric: the figure of the file against its promises and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from exporter.checks.protocol import CheckedFile, RuntimeCheck
from exporter.manifest import Metric
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session
from exporter.runtimes.session import Array, OnnxValue


class InvalidMetric(Exception):
    """The function of a metric fails or returns no number."""


def compute_metric(
    function: Callable[..., object], name: str, run: Callable[..., Mapping[str, OnnxValue]]
) -> float:
    """Return the number that a function of the project computes with a model or a file.

    Raises:
        InvalidMetric: If it raises an exception, or returns something else.
    """
    try:
        value = function(run)
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise InvalidMetric(f"{name} raises {type(error).__name__}: {text}") from error
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not is_number or not np.isfinite(value):
        raise InvalidMetric(f"{name} returns {str(value)[:80]!r}, expected a finite number")
    return float(value)


def _has_metric(checked: CheckedFile) -> bool:
    """Return whether the entry has a metric, which is a figure of the trained weights."""
    return checked.spec.metric is not None and not checked.spec.lacks_weights


@partial(RuntimeCheck, "metric", applies=_has_metric)
def check_metric(checked: CheckedFile, session: Session, _: str) -> CheckResult:
    """Compare the metric with both promises; a file of zeros must break one of them."""
    metric, known = checked.spec.metric, checked.reference.metric
    if metric is None or not known:
        message = "PyTorch's metric is missing; export the model again"
        return CheckResult(check="metric", status=Status.ERROR, message=message)
    names = [output.name for output in checked.spec.outputs]

    def run(**inputs: Array) -> Mapping[str, OnnxValue]:
        return dict(zip(session.output_names, session.run(inputs), strict=True))

    try:
        if set(session.output_names) != set(names):
            raise InvalidMetric(f"the outputs are {', '.join(session.output_names)}")
        value = compute_metric(checked.load_function(metric.call), metric.call, run)
    except InvalidMetric as error:
        return CheckResult(check="metric", status=Status.ERROR, message=str(error))
    problems = find_metric_problems(metric, value, known[0])
    status, message = Status.PASS, ""
    if problems:
        status, message = Status.FAIL, "; ".join(problems)
    elif not find_metric_problems(metric, known[-1], known[0]):
        status = Status.INCONCLUSIVE
        message = f"a file that returns zeros has the metric {known[-1]:.6g}, which passes, too"
    figures: dict[str, int | float | str] = {"metric": value, "pytorch": known[0]}
    return CheckResult(check="metric", status=status, message=message, metrics=figures)


def find_metric_problems(metric: Metric, value: float, pytorch: float) -> list[str]:
    """Return the promises of a metric that a value breaks."""
    problems = []
    if metric.least is not None and value < metric.least:
        text = f"{metric.call} is {value:.6g}, at least {metric.least:g} is promised"
        problems.append(f"{text} (PyTorch: {pytorch:.6g})")
    if metric.drop is not None and pytorch - value > metric.drop:
        text = f"{metric.call} drops by {pytorch - value:.4g}, from {pytorch:.6g} to {value:.6g}"
        problems.append(f"{text}; at most {metric.drop:g} is promised")
    return problems
