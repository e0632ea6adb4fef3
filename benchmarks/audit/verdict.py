"""Verdict on one mutant: the checks of an export, then a search for an error that they missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.audit.counterexamples import (
    Inputs,
    NoSuchInput,
    draw_inputs,
    plan_trials,
)
from benchmarks.audit.mutators.mutants import Mutant
from benchmarks.audit.results import MutantOutcome
from exporter.checks import RUNTIME_CHECKS, STRUCTURE_CHECKS
from exporter.checks.comparison.compare_outputs import compare_output
from exporter.checks.comparison.tolerance import ComparedOutput
from exporter.checks.protocol import CheckedFile, SampleData
from exporter.manifest import Device
from exporter.records.record import Status
from exporter.runtimes import LoadFailure, RunFailure, RuntimeProcessEnd, Session, open_session
from exporter.runtimes.session import Array, OnnxValue


@dataclass(frozen=True, slots=True)
class Rejection:
    """A check that did not pass."""

    check: str
    message: str


@dataclass(frozen=True, slots=True)
class FoundDifference:
    """The result of a search on further inputs."""

    outcome: MutantOutcome
    reason: str


def find_first_failure(context: CheckedFile, device: Device) -> Rejection | None:
    """Return the first check, in the order of an export, that does not pass.

    An export runs all checks, but its status depends on the first failure only.

    Returns:
        None if all checks pass.
    """
    for check in STRUCTURE_CHECKS:
        result = check(context)
        if result.status is not Status.PASS:
            return Rejection(result.check, result.message)
    try:
        session = open_session(context.path, device, context.kernels)
        for runtime_check in RUNTIME_CHECKS:
            if runtime_check.applies(context):
                result = runtime_check(context, session, device.name)
                if result.status is not Status.PASS:
                    return Rejection(result.check, result.message)
    except (LoadFailure, RuntimeProcessEnd) as error:
        return Rejection("load", str(error))
    return None


def search_difference(
    context: CheckedFile, original: CheckedFile, device: Device, change: Mutant, seed: int
) -> FoundDifference:
    """Run the mutant and the original file on further inputs.

    Args:
        context: The mutant.
        original: The original file.
        device: The device of both.
        change: The mutant, with the indices and sizes that its change affects.
        seed: Seed of the inputs.
    """
    before = open_session(original.path, device, original.kernels)
    after = open_session(context.path, device, context.kernels)
    largest, count = 0.0, 0
    for name, inputs in _draw_all_inputs(context, change, seed):
        try:
            expected = before.run(inputs)
        except RunFailure:
            continue  # the original fails too, so the contract does not include them
        count += 1
        difference = _measure_difference(context, after, inputs, expected, device.name)
        if isinstance(difference, str):
            return FoundDifference(MutantOutcome.SURVIVED, f"on {name}: {difference}")
        largest = max(largest, difference)
    if not count:
        reason = "no further input runs, so the change may have an effect"
        return FoundDifference(MutantOutcome.SURVIVED, reason)
    if largest:
        reason = f"changes outputs by {largest:.1e} of the allowed error"
        return FoundDifference(MutantOutcome.WITHIN, reason)
    return FoundDifference(MutantOutcome.SAME, f"the same outputs on {count} further inputs")


def _draw_all_inputs(
    context: CheckedFile, change: Mutant, seed: int
) -> Iterator[tuple[str, Inputs]]:
    samples = [sample for sample in context.reference.promised_samples if not sample.error]
    stored = [context.read(sample).inputs for sample in samples]
    for trial in plan_trials(context.spec, seed, change.rows, change.sizes, change.numbers):
        try:
            yield trial.name, draw_inputs(context.spec, trial, stored, seed)
        except NoSuchInput:
            continue


def _measure_difference(
    context: CheckedFile,
    session: Session,
    inputs: Mapping[str, Array],
    expected: Sequence[OnnxValue],
    device: str,
) -> float | str:
    """Return the largest difference as a share of the limit, or a message if it is exceeded."""
    try:
        outputs = session.run(inputs)
    except RunFailure as failure:
        return f"the runtime fails: {failure}"
    # The original file replaces PyTorch and the float64 run, to use the same limits.
    wide = tuple(_to_float64(value) for value in expected)
    data = SampleData(inputs=inputs, outputs=tuple(expected), float64_outputs=wide)
    largest = 0.0
    for index, value in enumerate(outputs):
        output = ComparedOutput(context, index, device)
        for name, comparison in compare_output(value, data, output):
            if comparison.problem:
                return f"{name} differs, {comparison.limit_ratio:.1e} times the allowed error"
            largest = max(largest, comparison.limit_ratio)
    return largest


def _to_float64(value: OnnxValue) -> OnnxValue:
    if isinstance(value, list):
        return [item.astype(np.float64) for item in value]
    return value.astype(np.float64)
