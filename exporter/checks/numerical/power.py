"""`power`: the comparison could have failed.

A network with unlucky weights puts out 1e-9 whatever it is given, and then any file is within an
atol of 1e-5 of it. So the allowed error must be small against the output, and outputs for inputs of
another seed must lie further apart than that.

An output that does not move at all is a constant, such as a mask or positions: it is told from a
wrong one by its size. But where no output moves, no input was seen to matter: integers are compared
exactly, and yet a file that always answers 7 passes where PyTorch does. Where no input is random
there is no other seed, and size is all that can be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.checks.comparison.compare_outputs import overflow_of
from exporter.checks.comparison.tolerance import is_float, limit_of
from exporter.checks.protocol import CheckContext
from exporter.records.record import CheckResult, Status
from exporter.runtimes import Session

#: How much larger than the allowed error the output and its movement must be.
_FAR = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """An output, with figures as shares of its scale; all but `spread` are 0 for no float."""

    name: str
    is_real: bool
    is_empty: bool = False
    """Whether a fixed size of 0 leaves nothing to compare."""
    scale: float = 0.0
    """Of the sample in which it is largest."""
    limit: float = 0.0
    """What may be off there."""
    why: str = ""
    overflow: str = ""
    """How PyTorch's dtype leaves its range."""
    spread: float | None
    """How far it moves from the declared sample; None where that is not known."""
    limit_where_it_moves: float = 0.0
    """What may be off in the declared sample."""


class Power:
    """How far outputs move, against how far they may be off; see `RuntimeCheck`."""

    name = "power"

    def applies(self, subject: CheckContext) -> bool:
        """Every comparison needs it."""
        return True

    def __call__(self, subject: CheckContext, session: Session, device: str) -> CheckResult:
        """Inconclusive where a wrong file would have passed."""
        outputs = [_output(subject, index, device) for index in range(len(subject.spec.outputs))]
        problems = [problem for output in outputs if (problem := _problem(output))]
        full = [output for output in outputs if not output.is_empty]
        if not problems and all(output.spread == 0 for output in full):
            names = ", ".join(f"'{output.name}'" for output in full)
            same = f"inputs of another seed give the very same {names}"
            problems = [same if full else "no output has an element"]
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


def _output(subject: CheckContext, index: int, device: str) -> _Output:
    output, spread = subject.spec.outputs[index], subject.reference.spread[index]
    if not is_float(output.dtype) or 0 in output.shape:
        is_empty = 0 in output.shape
        return _Output(name=output.name, is_real=False, is_empty=is_empty, spread=spread)
    # One sample in which the output is large enough can tell a wrong file.
    scale = max((s.scales[index] for s in subject.reference.samples if s.scales), default=0.0)
    declared = (s for s in subject.reference.samples if s.kind == "declared" and s.scales)
    here = next((sample.scales[index] for sample in declared), 0.0)
    limit = limit_of(subject, index, device, scale)
    return _Output(
        name=output.name,
        is_real=True,
        scale=scale,
        limit=limit.at(scale) / scale if scale else 0.0,
        why=limit.why,
        overflow=overflow_of(subject.reference, index),
        spread=spread,
        limit_where_it_moves=limit_of(subject, index, device, here).at(here) / (here or 1.0),
    )


def _problem(output: _Output) -> str:
    if not output.is_real:
        return ""
    if not output.scale:
        because = f": {output.overflow}" if output.overflow else ""
        return f"output '{output.name}' has no number but 0{because}"
    if output.limit * _FAR > 1:
        return f"of output '{output.name}' {_allowed(output.limit, output.why)}"
    if output.spread and output.spread < output.limit_where_it_moves * _FAR:
        allowed = _allowed(output.limit_where_it_moves, output.why)
        return f"output '{output.name}' moves by {output.spread:.1e} of its size, and {allowed}"
    return ""


def _allowed(limit: float, why: str) -> str:
    return f"{limit:.1e} of its size may be off ({why})"


def _metrics(outputs: list[_Output]) -> dict[str, int | float | str]:
    """The least movement, and the largest limit, of float outputs, as shares of the scale."""
    real = [output for output in outputs if output.is_real]
    spreads = [output.spread for output in real if output.spread is not None]
    metrics: dict[str, int | float | str] = {"spread": min(spreads)} if spreads else {}
    return {**metrics, "limit": max(output.limit for output in real)} if real else metrics
