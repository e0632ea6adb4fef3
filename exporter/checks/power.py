"""`power`: the comparison could have failed.

A network with unlucky weights puts out 1e-9 whatever it is given, and then any file is within an
atol of 1e-5 of it. So the allowed error must be small against the output, and outputs for inputs of
another seed must lie further apart than that.

An output that does not move at all is a constant, such as a mask or positions: it is told from a
wrong one by its size. But where no output moves, no input was seen to matter. Where no input is
random there is no other seed, and size is all that can be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from exporter.checks.protocol import Subject
from exporter.checks.tolerance import limit_of
from exporter.record import CheckResult, Status
from exporter.runtimes import Session

#: How much larger than the allowed error the output and its movement must be.
_FAR = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """A float output, with figures as shares of its scale."""

    name: str
    scale: float
    limit: float
    why: str
    spread: float | None
    """How far it moves with another seed; None where that is not known."""


class Power:
    """How far outputs move, against how far they may be off; see `ParityCheck`."""

    name = "power"

    def applies(self, subject: Subject) -> bool:
        """Where an output is compared within a limit: all others must be equal."""
        return any(_is_real(output.dtype) for output in subject.spec.outputs)

    def __call__(self, subject: Subject, session: Session, device: str) -> CheckResult:
        """Inconclusive where a wrong file would have passed."""
        outputs = list(_outputs(subject, device))
        problems = [problem for output in outputs if (problem := _problem(output))]
        if not problems and all(output.spread == 0 for output in outputs):
            names = ", ".join(f"'{output.name}'" for output in outputs)
            problems = [f"inputs of another seed give the very same {names}"]
        status, message = Status.PASS, ""
        if problems:
            status = Status.INCONCLUSIVE
            message = (
                f"a wrong file would pass: {'; '.join(problems)}; give the model other weights "
                "or inputs, or a smaller tolerance"
            )
        return CheckResult(
            check=self.name, status=status, message=message, metrics=_metrics(outputs)
        )


def _is_real(dtype: str) -> bool:
    return dtype.removeprefix("b").startswith("float")


def _outputs(subject: Subject, device: str) -> Iterator[_Output]:
    for index, output in enumerate(subject.spec.outputs):
        if not _is_real(output.dtype):
            continue
        # One sample in which the output is large enough can tell a wrong file.
        scale = max((s.scales[index] for s in subject.reference.samples if s.scales), default=0.0)
        limit = limit_of(subject, index, device, scale)
        yield _Output(
            name=output.name,
            scale=scale,
            limit=limit.at(scale) / scale if scale else 0.0,
            why=limit.why,
            spread=subject.reference.spread[index],
        )


def _problem(output: _Output) -> str:
    if not output.scale:
        return f"output '{output.name}' has no number but 0"
    allowed = f"{output.limit:.1e} of its size may be off ({output.why})"
    if output.limit * _FAR > 1:
        return f"of output '{output.name}' {allowed}"
    if output.spread and output.spread < output.limit * _FAR:
        return f"output '{output.name}' moves by {output.spread:.1e} of its size, and {allowed}"
    return ""


def _metrics(outputs: list[_Output]) -> dict[str, int | float | str]:
    """The least movement, and the largest limit, as shares of the scale."""
    metrics: dict[str, int | float | str] = {"limit": max(output.limit for output in outputs)}
    spreads = [output.spread for output in outputs if output.spread is not None]
    return {"spread": min(spreads), **metrics} if spreads else metrics
