"""The verdict on one mutant: the same checks as in an export, then the search for what they missed.

In: a `CheckContext` whose file is the mutant. Out: which check says no; and of one that all let pass,
what further inputs do to its outputs, held against the file as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from exporter.checks import RUNTIME_CHECKS, STRUCTURE_CHECKS
from exporter.checks.comparison.compare_outputs import OutputContext, compare_output
from exporter.checks.files.sample_files import SampleData
from exporter.checks.protocol import CheckContext
from exporter.manifest import Device
from exporter.records.audit import MutantOutcome
from exporter.records.record import Status
from exporter.runtimes import (
    LoadFailure,
    RunFailure,
    Session,
    open_session,
)
from exporter.runtimes.values import Array, OnnxValue
from exporter.tools.audit.child.counterexamples import (
    Inputs,
    NoSuchInput,
    draw_inputs,
    plan_trials,
)


@dataclass(frozen=True, slots=True)
class Rejection:
    """What said something else than pass."""

    by: str
    message: str


@dataclass(frozen=True, slots=True)
class FoundDifference:
    """What the further inputs showed."""

    fate: MutantOutcome
    why: str


def first_failure(subject: CheckContext, device: Device) -> Rejection | None:
    """The first check, in the order of the export, that does not pass; None where all do.

    The first no is enough: an export runs them all, but its verdict is the same.
    """
    for check in STRUCTURE_CHECKS:
        result = check(subject)
        if result.status is not Status.PASS:
            return Rejection(result.check, result.message)
    try:
        session = open_session(subject.path, device, subject.kernels)
    except LoadFailure as refused:
        return Rejection("load", str(refused))
    for parity in RUNTIME_CHECKS:
        if parity.applies(subject):
            result = parity(subject, session, device.name)
            if result.status is not Status.PASS:
                return Rejection(result.check, result.message)
    return None


def search_difference(
    subject: CheckContext, original: CheckContext, device: Device, rows: Sequence[int], seed: int
) -> FoundDifference:
    """Tries further inputs on the mutant and on the file as it was.

    Args:
        subject: The mutant.
        original: The file that it was made from.
        device: Where both run.
        rows: Indices that the change is about.
        seed: Of the inputs.
    """
    before = open_session(original.path, device, original.kernels)
    after = open_session(subject.path, device, subject.kernels)
    moved, tried = 0.0, 0
    for name, inputs in _inputs(subject, rows, seed):
        try:
            wanted = before.run(inputs)
        except RunFailure:
            continue  # not even the sound file takes them: nothing is promised there
        tried += 1
        found = _compare(subject, after, inputs, wanted, device.name)
        if isinstance(found, str):
            return FoundDifference(MutantOutcome.SURVIVED, f"on {name}: {found}")
        moved = max(moved, found)
    if not tried:
        return FoundDifference(
            MutantOutcome.SURVIVED, "nothing shows that it changes nothing: no further input runs"
        )
    if moved:
        return FoundDifference(
            MutantOutcome.WITHIN, f"moves outputs by {moved:.1e} of what is allowed"
        )
    return FoundDifference(MutantOutcome.SAME, f"the same outputs on {tried} further inputs")


def _inputs(subject: CheckContext, rows: Sequence[int], seed: int) -> Iterator[tuple[str, Inputs]]:
    spec = subject.spec
    stored = [
        subject.read(sample).inputs for sample in subject.reference.samples if not sample.error
    ]
    for trial in plan_trials(spec, seed, rows):
        try:
            yield trial.name, draw_inputs(spec, trial, stored, seed)
        except NoSuchInput:
            continue


def _compare(
    subject: CheckContext,
    session: Session,
    inputs: Mapping[str, Array],
    wanted: Sequence[OnnxValue],
    device: str,
) -> float | str:
    """The largest difference as a share of what is allowed; a text where it is more than that."""
    try:
        outputs = session.run(inputs)
    except RunFailure as failure:
        return f"the runtime fails: {failure}"
    largest = 0.0
    # The sound file stands for PyTorch, and for float64: how far off may it be is what is asked.
    exact = tuple(_in_float64(value) for value in wanted)
    sound = SampleData(inputs=inputs, outputs=tuple(wanted), float64_outputs=exact)
    for index, found in enumerate(outputs):
        for what, comparison in compare_output(found, sound, OutputContext(subject, index, device)):
            if comparison.problem:
                times = f"{comparison.limit_ratio:.1e} times what is allowed"
                return f"{what} differs, {times}"
            largest = max(largest, comparison.limit_ratio)
    return largest


def _in_float64(value: OnnxValue) -> OnnxValue:
    if isinstance(value, list):
        return [item.astype(np.float64) for item in value]
    return value.astype(np.float64)
