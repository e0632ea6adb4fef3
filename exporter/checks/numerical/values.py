"""`values`: whichever input gets other values, the file gives what PyTorch gives.

A trace keeps the number of turns of its loop, the branch that it took and every number that was
read out of a tensor: at the exported values such a file is right.
"""

from __future__ import annotations

from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import Sample
from exporter.records.record import CheckResult
from exporter.runtimes import Session


class Values:
    """The samples with one input changed; see `RuntimeCheck`."""

    name = "values"

    def applies(self, subject: CheckContext) -> bool:
        """Where PyTorch accepts other values in some input."""
        return bool(_samples(subject))

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Holds the outputs for each changed input against PyTorch's."""
        return compare_samples(self.name, _samples(subject), subject, session, device)


def _samples(subject: CheckContext) -> list[Sample]:
    return [item for item in subject.reference.samples if item.kind == "values"]
