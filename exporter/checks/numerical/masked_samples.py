"""Notes about inputs without any allowed element, which `thorough` tries.

A softmax over no element has no defined result: PyTorch returns 0, NaN or a mixture, and a file
may return another of these. The manifest promises nothing about it, so the verdict is the same.
"""

from __future__ import annotations

from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.protocol import CheckContext
from exporter.records.record import Status
from exporter.runtimes import Session

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
