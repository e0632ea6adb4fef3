"""The checks `parity`, `axes`, `cases` and `values`: the file and PyTorch give the same outputs.

- `parity`: the declared inputs.
- `axes`: other sizes of the dynamic axes.
- `cases`: the other input sets of the manifest.
- `values`: other values of one input. A trace stores the number of turns of a loop, the chosen
  branch and every number that was read from a tensor. Such a file passes with the exported values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.protocol import CheckContext, RuntimeCheck
from exporter.jobs import Sample
from exporter.manifest import Axis
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session

#: Check -> kind of its samples.
SAMPLE_KINDS: Mapping[str, str] = {
    "parity": "declared",
    "axes": "axis",
    "cases": "case",
    "values": "values",
}
_Conclude = Callable[[CheckContext, Sequence[Sample], CheckResult], CheckResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCheck:
    """The comparison of all samples of one kind; see `RuntimeCheck`."""

    name: str
    is_promised: Callable[[CheckContext], bool]
    find_missing: Callable[[CheckContext, Sequence[Sample]], str] = lambda _, __: ""
    """Return the samples that are missing, or "" if all exist."""
    conclude: _Conclude = lambda _, __, result: result
    """Return the final result of a comparison that passed."""

    def applies(self, context: CheckContext) -> bool:
        """Return True if the contract has the promise."""
        return self.is_promised(context)

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Compare the outputs for every sample of the kind with PyTorch's."""
        samples = select_samples(self.name, context)
        if missing := self.find_missing(context, samples):
            message = f"PyTorch's outputs are missing for {missing}: nothing was compared"
            return CheckResult(check=self.name, status=Status.ERROR, message=message)
        result = compare_samples(self.name, samples, context, session, device)
        is_pass = result.status is Status.PASS
        return self.conclude(context, samples, result) if is_pass else result


def select_samples(check: str, context: CheckContext) -> list[Sample]:
    """Return the samples that the check compares."""
    kind = SAMPLE_KINDS[check]
    # The limits of a short proof come from all samples, as in the full one.
    reference = context.reference.shorten() if context.is_short else context.reference
    return [sample for sample in reference.samples if sample.kind == kind]


def _find_missing_declared(_context: CheckContext, samples: Sequence[Sample]) -> str:
    return "" if samples else "the declared inputs"


def _find_missing_cases(context: CheckContext, samples: Sequence[Sample]) -> str:
    names = {sample.name for sample in samples}
    return ", ".join(case.name for case in context.spec.cases if case.name not in names)


def _input_axes(context: CheckContext) -> list[Axis]:
    return [axis for axis in context.spec.axes if axis.example is not None]


def _conclude_axes(
    context: CheckContext, samples: Sequence[Sample], result: CheckResult
) -> CheckResult:
    """Add the range of tested sizes, or report axes that no sample changes."""
    untested, ranges = [], []
    for axis in _input_axes(context):
        sizes = {sample.axes.get(axis.name, axis.example) for sample in samples} | {axis.example}
        tested = [size for size in sizes if size is not None]
        if len(tested) == 1 and axis.is_free:
            untested.append(f"'{axis.name}'")
        ranges.append(f"{axis.name} {min(tested)} to {max(tested)}")
    if not untested:
        metrics = {**result.metrics, "proved": ", ".join(ranges)}
        return result.model_copy(update={"metrics": metrics})
    function = context.spec.inputs_from
    fix = "widen min and max, or declare a fixed size in the shape"
    if function is not None and not function.takes_sizes:
        fix = (
            f"{function.function} has no parameter for sizes; add one, which receives a dict of "
            "sizes by axis name, or declare a fixed size in the shape"
        )
    message = f"only the exported size was tested for {', '.join(untested)}: {fix}"
    return result.model_copy(update={"status": Status.INCONCLUSIVE, "message": message})


PARITY = SampleCheck(name="parity", is_promised=lambda _: True, find_missing=_find_missing_declared)
AXES = SampleCheck(
    name="axes",
    is_promised=lambda context: bool(_input_axes(context)),
    conclude=_conclude_axes,
)
CASES = SampleCheck(
    name="cases",
    is_promised=lambda context: bool(context.spec.cases),
    find_missing=_find_missing_cases,
)
VALUES = SampleCheck(
    name="values", is_promised=lambda context: bool(select_samples("values", context))
)
SAMPLE_CHECKS: tuple[RuntimeCheck, ...] = (PARITY, AXES, CASES, VALUES)


NOTE_PREFIX = "fully masked rows: "


def describe_masked_samples(
    context: CheckContext, session: Session, device: str
) -> tuple[str, ...]:
    """Return a note for each input without allowed elements on which the file differs."""
    samples = [each for each in context.reference.samples if each.kind == "masked"]
    names = [
        sample.changed_input
        for sample in samples
        if compare_samples("masked", [sample], context, session, device).status is Status.FAIL
    ]
    return tuple(
        f"{NOTE_PREFIX}PyTorch and the file differ if '{name}' allows no element of a row, because "
        "a softmax over no element has no defined result; keep an allowed element in every row"
        for name in names
    )
