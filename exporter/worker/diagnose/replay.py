"""One input set that a file gets wrong, held again against other runtimes and other files.

In: the check that said no. Out: `SampleReplay`: the sample that shows it, and for each session the same
question once more, by the same code: is it right now?
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from exporter.checks.comparison.compare_outputs import (
    OutputContext,
    choose_limit,
    split_float64_items,
)
from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.files.sample_files import SampleData
from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import Sample
from exporter.records.record import CheckResult, OutputLimit, Status
from exporter.runtimes import Session
from exporter.runtimes.values import Array, OnnxValue
from exporter.worker.diagnose.runtime_values import measure_error

#: Which samples each check holds.
_KINDS = {"parity": "declared", "axes": "axis", "cases": "case", "values": "values"}
_NUMERIC = "times the bound"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What came of one trial."""

    is_right: bool
    text: str
    """`right`, `wrong, over 1e5 times the bound`, or `wrong: ` and what the check says."""
    is_numeric: bool = False
    """Whether numbers are too far off, and nothing else is wrong."""


class SampleReplay:
    """The same sample again and again."""

    def __init__(self, subject: CheckContext, device: str, sample: Sample) -> None:
        self._subject = subject
        self._device = device
        self.sample = sample
        self.data = subject.read(sample)

    def ask(self, session: Session) -> ReplayResult:
        """Whether the session gives what PyTorch gives."""
        result = _hold(self.sample, self._subject, session, self._device)
        text = _text(result)
        return ReplayResult(result.status is Status.PASS, text, text.endswith(_NUMERIC))

    def allowed(self) -> tuple[OutputLimit, ...]:
        """How far each output may be off on this sample."""
        return tuple(self._allowed(index) for index in range(len(self.data.outputs)))

    def _allowed(self, index: int) -> OutputLimit:
        expected, exact = self.data.outputs[index], self.data.float64_outputs[index]
        if not isinstance(expected, list):
            return self._tensor_allowed(index, expected, None if isinstance(exact, list) else exact)
        pairs = zip(expected, split_float64_items(exact, len(expected)), strict=True)
        return OutputLimit(items=tuple(self._tensor_allowed(index, *pair) for pair in pairs))

    def _tensor_allowed(self, index: int, expected: Array, exact: Array | None) -> OutputLimit:
        limit, against = choose_limit(
            expected, exact, OutputContext(self._subject, index, self._device)
        )
        if limit is None:
            return OutputLimit()
        scale = limit.scale if math.isfinite(limit.scale) else None
        is_exact = against is not expected
        return OutputLimit(atol=limit.atol, rtol=limit.rtol, exact=is_exact, scale=scale)


class ReferenceSession:
    """PyTorch's own outputs, as a `Session`: what they do not pass, no file can."""

    placement = None

    def __init__(self, names: Sequence[str], data: SampleData) -> None:
        self.output_names = names
        self._outputs = data.outputs

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """The outputs, whatever the inputs."""
        return self._outputs


def find_failing_sample(
    check: str, subject: CheckContext, session: Session, device: str
) -> Sample | None:
    """The first sample of the check that the session gets wrong."""
    kind = _KINDS.get(check)
    for sample in subject.reference.samples:
        if sample.kind == kind:
            result = _hold(sample, subject, session, device)
            if result.status is not Status.PASS:
                return sample
    return None


def measure_distance(one: Sequence[OnnxValue], other: Sequence[OnnxValue]) -> float:
    """The largest error between two runs, as a share of the scale of its output."""
    if len(one) != len(other):
        return float(np.inf)
    return max((measure_error(a, b) for a, b in zip(one, other, strict=True)), default=0.0)


def _hold(sample: Sample, subject: CheckContext, session: Session, device: str) -> CheckResult:
    return compare_samples("diagnose", [sample], subject, session, device)


def _text(result: CheckResult) -> str:
    """In steps of ten: pages hold these lines, and rounding differs between machines."""
    if result.status is Status.PASS:
        return "right"
    times = result.metrics.get("of_limit")
    # Within the bound the numbers are right, and something else is wrong: a size, a name.
    if not isinstance(times, float) or not np.isfinite(times) or times <= 1:
        return f"wrong: {result.message}"
    if times < 10:
        return f"wrong, less than 10 {_NUMERIC}"
    return f"wrong, over 1e{int(np.log10(times))} {_NUMERIC}"
