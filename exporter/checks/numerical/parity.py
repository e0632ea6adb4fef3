"""`parity`: on the declared inputs the file gives what PyTorch gives."""

from __future__ import annotations

from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session


class Parity:
    """The declared sample; see `RuntimeCheck`."""

    name = "parity"

    def applies(self, subject: CheckContext) -> bool:
        """Every contract promises it."""
        return True

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Holds the outputs for the declared inputs against PyTorch's."""
        samples = [item for item in subject.reference.samples if item.kind == "declared"]
        if not samples:
            message = "PyTorch's outputs for the declared inputs are missing: nothing was compared"
            return CheckResult(check=self.name, status=Status.ERROR, message=message)
        return compare_samples(self.name, samples, subject, session, device)
