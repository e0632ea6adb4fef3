"""`determinism`: PyTorch agrees with itself; else no comparison with it means anything."""

from __future__ import annotations

from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session

#: How `Reference.unstable` begins where the buffers alone are to blame.
KEEPS_STATE = "it keeps state in its buffers"


class Determinism:
    """What the worker saw when it ran PyTorch twice; see `RuntimeCheck`."""

    name = "determinism"

    def applies(self, subject: CheckContext) -> bool:
        """Every comparison needs it."""
        return True

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Inconclusive where the model gave two answers to one question."""
        if not subject.reference.unstable:
            return CheckResult(check=self.name, status=Status.PASS)
        message = f"PyTorch differs from itself: {subject.reference.unstable}; {_advice(subject)}"
        return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)


def _advice(subject: CheckContext) -> str:
    if subject.reference.unstable.startswith(KEEPS_STATE):
        return "take the state as an input and return it as an output"
    if subject.spec.mode != "eval":
        return f"mode is '{subject.spec.mode}': 'eval' turns dropout and running averages off"
    return "make random numbers an input, or draw them once when the model is built"
