"""`axes`: every dynamic axis is dynamic: at other sizes the file gives what PyTorch gives."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import Sample
from exporter.manifest import Axis
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session


class Axes:
    """The samples at other sizes; see `RuntimeCheck`."""

    name = "axes"

    def applies(self, subject: CheckContext) -> bool:
        """Where an input has a dynamic axis."""
        return bool(_input_axes(subject))

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Holds the outputs at every probed size against PyTorch's."""
        samples = [item for item in subject.reference.samples if item.kind == "axis"]
        result = compare_samples(self.name, samples, subject, session, device)
        untried = [axis.name for axis in _input_axes(subject) if not _is_tried(axis, samples)]
        if result.status is Status.PASS and untried:
            names = ", ".join(f"'{name}'" for name in untried)
            message = f"no size but the exported one was tried for {names}: {_way_out(subject)}"
            return result.model_copy(update={"status": Status.INCONCLUSIVE, "message": message})
        if result.status is Status.PASS:
            tried = ", ".join(_range(axis, samples) for axis in _input_axes(subject))
            return result.model_copy(update={"metrics": {**result.metrics, "proved": tried}})
        return result


def _way_out(subject: CheckContext) -> str:
    maker = subject.spec.inputs_from
    if maker is not None and not maker.takes_sizes:
        return (
            f"{maker.function} takes no sizes; give it a parameter, which gets a dict of them by "
            "the name of the axis, or write the size where the name stands"
        )
    return "widen min and max, or write the size where the name stands"


def _input_axes(subject: CheckContext) -> list[Axis]:
    return [axis for axis in subject.spec.axes if axis.example is not None]


def _range(axis: Axis, samples: Sequence[Sample]) -> str:
    """From where to where sizes were tried: nothing is known of an axis beyond it."""
    sizes = {sample.axes.get(axis.name, axis.example) for sample in samples} | {axis.example}
    known = [size for size in sizes if size is not None]
    return f"{axis.name} {min(known)} to {max(known)}"


def _is_tried(axis: Axis, samples: Sequence[Sample]) -> bool:
    return any(sample.axes.get(axis.name, axis.example) != axis.example for sample in samples)
