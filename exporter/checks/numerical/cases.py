"""`cases`: on every other input set of the manifest the file gives what PyTorch gives."""

from __future__ import annotations

from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session


class Cases:
    """The samples of the manifest's cases; see `RuntimeCheck`."""

    name = "cases"

    def applies(self, subject: CheckContext) -> bool:
        """Where the manifest has cases."""
        return bool(subject.spec.cases)

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Holds the outputs of every case against PyTorch's."""
        samples = [item for item in subject.reference.samples if item.kind == "case"]
        have = {sample.name for sample in samples}
        missing = [case.name for case in subject.spec.cases if case.name not in have]
        if missing:
            message = f"PyTorch's outputs are missing for {', '.join(missing)}"
            return CheckResult(check=self.name, status=Status.ERROR, message=message)
        return compare_samples(self.name, samples, subject, session, device)
