"""One failing sample, run again with other runtimes and other files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from exporter.checks.comparison.compare_outputs import split_float64_items
from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.comparison.tensor_limit import choose_limit
from exporter.checks.comparison.tolerance import ComparedOutput
from exporter.checks.protocol import CheckedFile, SampleData
from exporter.checks.sample_checks import SAMPLE_KINDS
from exporter.jobs import Sample
from exporter.records.record import CheckResult, OutputLimit, Status
from exporter.runtimes import Session
from exporter.runtimes.session import Array, OnnxValue
from exporter.worker.diagnosis.runtime_values import measure_error

_NUMERIC = "times the bound"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of one comparison."""

    is_right: bool
    text: str
    """`right`, `wrong, over 1e5 times the bound`, or `wrong: ` and the message of the check."""
    is_numeric: bool = False
    """True if numbers differ too much and everything else is right."""


class SampleReplay:
    """One sample that several sessions run."""

    def __init__(self, checked: CheckedFile, device_name: str, sample: Sample) -> None:
        self._checked = checked
        self._device = device_name
        self.sample = sample
        self.data = checked.read(sample)

    def compare(self, session: Session) -> ReplayResult:
        """Compare the outputs of a session with PyTorch's."""
        result = _compare(self.sample, self._checked, session, self._device)
        times = result.metrics.get("of_limit")
        # Within the bound the numbers are right, and a size or a name is wrong.
        if result.status is Status.PASS:
            text = "right"
        elif not isinstance(times, float) or not np.isfinite(times) or times <= 1:
            text = f"wrong: {result.message}"
        elif times < 10:
            text = f"wrong, less than 10 {_NUMERIC}"
        else:  # a power of ten: exact rounding errors differ between machines
            text = f"wrong, over 1e{int(np.log10(times))} {_NUMERIC}"
        return ReplayResult(result.status is Status.PASS, text, text.endswith(_NUMERIC))

    def list_limits(self) -> tuple[OutputLimit, ...]:
        limits = []
        pairs = zip(self.data.outputs, self.data.float64_outputs, strict=True)
        for index, (expected, exact) in enumerate(pairs):
            if isinstance(expected, list):
                items = zip(expected, split_float64_items(exact, len(expected)), strict=True)
                tensors = (self._limit_tensor(index, *item) for item in items)
                limits.append(OutputLimit(items=tuple(tensors)))
            else:
                tensor = None if isinstance(exact, list) else exact
                limits.append(self._limit_tensor(index, expected, tensor))
        return tuple(limits)

    def _limit_tensor(self, index: int, expected: Array, exact: Array | None) -> OutputLimit:
        checked_output = ComparedOutput(self._checked, index, self._device)
        limit, basis = choose_limit(expected, exact, checked_output)
        if limit is None:
            return OutputLimit()
        scale = limit.scale if math.isfinite(limit.scale) else None
        is_exact = basis is not expected
        return OutputLimit(atol=limit.atol, rtol=limit.rtol, exact=is_exact, scale=scale)


class ExpectedSession:
    """A `Session` with PyTorch's own outputs; if they fail a check, no file can pass it."""

    placement = None

    def __init__(self, names: Sequence[str], data: SampleData) -> None:
        self.output_names = names
        self._outputs = data.outputs

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        return self._outputs


def find_failing_sample(
    check: str, checked: CheckedFile, session: Session, device_name: str
) -> Sample | None:
    """Return the first sample of the check that fails in the session."""
    kind = SAMPLE_KINDS.get(check)
    for sample in checked.reference.samples:
        if sample.kind == kind:
            result = _compare(sample, checked, session, device_name)
            if result.status is not Status.PASS:
                return sample
    return None


#: A smaller error, as a share of the scale, shows that two outputs are exchanged.
_EQUAL = 1e-4


def find_exchanged_outputs(
    names: Sequence[str], actual: Sequence[OnnxValue], expected: Sequence[OnnxValue]
) -> str:
    """Return the first two outputs that have each other's values, or ""."""
    for one, other in combinations(range(len(names)), 2):
        is_one = measure_error(actual[one], expected[other]) < _EQUAL
        if is_one and measure_error(actual[other], expected[one]) < _EQUAL:
            return f"the outputs '{names[one]}' and '{names[other]}' are exchanged"
    return ""


def measure_distance(one: Sequence[OnnxValue], other: Sequence[OnnxValue]) -> float:
    """Return the largest error between two runs, as a share of the scale of its output."""
    if len(one) != len(other):
        return float(np.inf)
    return max((measure_error(a, b) for a, b in zip(one, other, strict=True)), default=0.0)


def _compare(
    sample: Sample, checked: CheckedFile, session: Session, device_name: str
) -> CheckResult:
    return compare_samples("diagnose", [sample], checked, session, device_name)
