"""The check `determinism`: two runs of PyTorch give equal outputs.

Without this, no comparison with PyTorch means anything.
"""

from __future__ import annotations

from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session

#: Prefix of `Reference.unstable` if only the buffers change.
STATEFUL_PREFIX = "it keeps state in its buffers"
#: Prefix if a call changes parameters; their names follow.
WEIGHTS_PREFIX = "a call changes"
#: Prefix if the outputs are others after calls with other inputs.
HISTORY_PREFIX = "its outputs depend on earlier calls"
#: Prefix if a second build has other weights; their names follow.
BUILD_PREFIX = "two builds of the model differ in"
_STATE_PREFIXES = (STATEFUL_PREFIX, WEIGHTS_PREFIX, HISTORY_PREFIX)


class DeterminismCheck:
    """The difference between two runs of PyTorch in the worker; see `RuntimeCheck`."""

    name = "determinism"

    def applies(self, context: CheckContext) -> bool:
        """Return True: every comparison needs a deterministic reference."""
        return True

    def __call__(self, context: CheckContext, session: Session, device: str) -> CheckResult:
        """Return an inconclusive result if equal inputs gave different outputs."""
        unstable = context.reference.unstable
        if not unstable:
            return CheckResult(check=self.name, status=Status.PASS)
        if unstable.startswith(_STATE_PREFIXES):
            fix = "declare the state as an input and return it as an output"
        elif unstable.startswith(BUILD_PREFIX):
            fix = (
                "build it from numbers of Python, numpy or torch, which are seeded, or from a file"
            )
        elif context.spec.mode != "eval":
            fix = f"mode is '{context.spec.mode}': 'eval' turns dropout and running averages off"
        else:
            fix = "make random numbers an input, or draw them once when the model is built"
        message = f"PyTorch differs from itself: {unstable}; {fix}"
        return CheckResult(check=self.name, status=Status.INCONCLUSIVE, message=message)
