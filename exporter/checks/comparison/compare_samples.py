"""Samples held against a session: what `parity`, `axes` and `cases` share.

In: a `CheckContext`, a `Session` and the kind of samples. Out: one `CheckResult` over all of them.

A sample passes when the file runs on it and every output has the name, dtype and shape that the
contract declares and the values that PyTorch gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from exporter.checks.comparison.compare_arrays import Comparison, Needed
from exporter.checks.comparison.compare_outputs import OutputContext, compare_output
from exporter.checks.comparison.declared_shapes import undeclared
from exporter.checks.files.samples import DamagedSample
from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import Sample
from exporter.records.record import CheckResult, Status
from exporter.runtimes import RunFailure, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult:
    """What came of one sample."""

    sample: Sample
    problems: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()


def compare_samples(
    check: str,
    samples: Sequence[Sample],
    subject: CheckContext,
    session: Session,
    device: str,
) -> CheckResult:
    """Runs every sample and compares every output; all samples run, whatever the first gives."""
    try:
        outcomes = [_hold(sample, subject, session, device) for sample in samples]
    except DamagedSample as damaged:
        message = f"PyTorch's outputs cannot be read: {damaged}"
        return CheckResult(check=check, status=Status.ERROR, message=message)
    failed = [outcome for outcome in outcomes if outcome.problems]
    return CheckResult(
        check=check,
        status=Status.FAIL if failed else Status.PASS,
        message=_message(failed, len(outcomes)) if failed else "",
        metrics=_metrics(outcomes),
    )


def _hold(sample: Sample, subject: CheckContext, session: Session, device: str) -> SampleResult:
    if sample.error:
        return SampleResult(sample=sample, problems=(_refusal(sample),))
    names = [output.name for output in subject.spec.outputs]
    if list(session.output_names) != names:
        found, wanted = ", ".join(session.output_names) or "none", ", ".join(names)
        return SampleResult(
            sample=sample, problems=(f"the file's outputs are {found}, declared {wanted}",)
        )
    subject = with_noise_of(sample, subject)
    data = subject.read(sample)
    try:
        # Copies: other files are run on the same inputs, whatever a runtime does to them.
        actual = session.run({name: array.copy() for name, array in data.inputs.items()})
    except RunFailure as failure:
        return SampleResult(sample=sample, problems=(f"the runtime fails: {failure}",))
    if len(actual) != len(names):
        problem = f"the runtime gives {len(actual)} outputs, declared {len(names)}"
        return SampleResult(sample=sample, problems=(problem,))
    compared = [
        pair
        for index, value in enumerate(actual)
        for pair in compare_output(value, data, OutputContext(subject, index, device, sample.exact))
    ]
    problems = (
        *undeclared(subject.spec.outputs, data.outputs, sample.axes),
        *(f"{what}: {found.problem}" for what, found in compared if found.problem),
    )
    comparisons = tuple(comparison for _, comparison in compared)
    return SampleResult(sample=sample, problems=problems, comparisons=comparisons)


def with_noise_of(sample: Sample, subject: CheckContext) -> CheckContext:
    """Where inputs are of another magnitude, PyTorch's own noise may be larger too."""
    if not sample.noise:
        return subject
    pairs = zip(subject.reference.noise, sample.noise, strict=True)
    noise = tuple(None if usual is None or own is None else max(usual, own) for usual, own in pairs)
    return replace(subject, reference=subject.reference.model_copy(update={"noise": noise}))


def _refusal(sample: Sample) -> str:
    if sample.kind == "case":
        return f"PyTorch itself refuses this case: {sample.error}"
    sizes = "its declared inputs" if sample.kind == "declared" else sample.name
    advice = "" if sample.kind == "declared" else "; narrow the axis with min, max or multiple_of"
    return f"PyTorch itself refuses {sizes}: {sample.error}{advice}"


def _message(failed: Sequence[SampleResult], count: int) -> str:
    """The first failing sample in full, the others by name."""
    first, *others = failed
    prefix = "" if first.sample.kind == "declared" else f"{first.sample.name}: "
    if first.sample.error and first.sample.kind == "axis":
        prefix = ""  # the sentence names the sizes
    more = len(first.problems) - 1
    parts = [prefix + first.problems[0]]
    if more:
        parts.append(f"{more} more problem{'s' if more > 1 else ''}")
    if others:
        names = ", ".join(outcome.sample.name for outcome in others)
        parts.append(f"fails on {names} too ({len(failed)} of {count})")
    return "; ".join(parts)


def _metrics(outcomes: Sequence[SampleResult]) -> dict[str, int | float | str]:
    """The worst over all samples and outputs; more figures where something is wrong."""
    metrics: dict[str, int | float | str] = {"samples": len(outcomes)}
    compared = [item for outcome in outcomes for item in outcome.comparisons]
    if not compared:
        return metrics
    wrong = [item for item in compared if item.problem]
    metrics["max_abs"] = max(item.max_abs for item in compared)
    metrics["of_limit"] = max(item.of_limit for item in compared)
    multiples = [item.of_noise for item in compared if item.of_noise is not None]
    if multiples:
        metrics["of_noise"] = max(multiples)
    if wrong:
        metrics.update(max(wrong, key=lambda item: item.of_limit).details)
        # No tolerance helps where kinds or shapes differ, or where values must be equal.
        if not any(item.needed is None for item in wrong):
            metrics["needs"] = _tolerance([item.needed for item in compared if item.needed])
    return metrics


def _tolerance(needed: Sequence[Needed]) -> str:
    """The smallest tolerance under which all would pass, as the manifest says it."""
    least = rounded_up(max(item.atol for item in needed))
    atol = f"{least:.1e}" if least else "0.0"
    rtol = max(item.rtol for item in needed)
    outside = min(item.outside for item in needed)
    share = f", outside = {outside!r}" if outside else ""
    return f"tolerance = {{ atol = {atol}, rtol = {rtol!r}{share} }}"


def rounded_up(value: float) -> float:
    """With two significant digits, never less than `value`."""
    if not value:
        return 0.0
    exact = Decimal(value)
    step = Decimal((0, (1,), exact.adjusted() - 1))
    return float(exact.quantize(step, rounding=ROUND_CEILING))
