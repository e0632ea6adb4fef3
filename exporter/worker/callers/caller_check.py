"""The check `caller`: the results of a program of the project against PyTorch's."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from exporter.checks.comparison.compare_arrays import (
    compare_arrays,
    measure_scale,
)
from exporter.checks.comparison.tolerance import Limit
from exporter.core.check_table import CALLER_CHECK
from exporter.core.text import pluralize
from exporter.manifest import Caller, ModelSpec
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.records.record import PREPROCESS, CheckResult, Status
from exporter.worker.callers.caller_process import CallerReport, SampleRun
from exporter.worker.callers.mistakes import Call, explain_difference
from exporter.worker.callers.preprocessing import PREPARED, PROVED, judge_preprocessing
from exporter.worker.callers.reference import SAMPLES, locate_references
from exporter.worker.callers.results import Array, Values, name_value, read_values
from exporter.worker.job_output import JobOutput
from exporter.worker.process.failure import format_message

#: Before the reason why `preprocess` of an input is not proved.
_UNPROVED = "declared, not proved: "
_FUNCTION = "exporter.worker.callers.caller_process:run_caller"
#: The share of the time of a model's job that one process of a caller may use.
_SHARE = 0.25
#: The dtype in which integers and complex numbers are compared.
_WIDE = {"i": np.int64, "u": np.int64, "c": np.complex128}
#: The allowed difference of a float, as a share of the scale and of the value.
_ATOL, _RTOL = 1e-4, 1e-3


def check_callers(output: JobOutput, spec: ModelSpec, opset: int) -> tuple[CheckResult, ...]:
    """Run every caller of an entry with the file of an opset, and compare its results.

    A program opens the file itself, so the result is the same for each device.
    """
    if not spec.callers:
        return ()
    start = time.perf_counter()
    results = [
        _check_caller(output, spec, number, opset, caller)
        for number, caller in enumerate(spec.callers)
    ]
    proved = {name for _, _, each in results for name, text in each.items() if text == PROVED}
    outcomes = {name: text for _, _, each in results for name, text in each.items()}
    red = [(status, text) for status, text, _ in results if status is not Status.PASS]
    first = next((status for status, _ in red if status is not Status.INCONCLUSIVE), None)
    return (
        CheckResult(
            check=CALLER_CHECK,
            status=first or (red[0][0] if red else Status.PASS),
            message="; ".join(text for _, text in red),
            metrics={
                "callers": len(results),
                **{
                    f"{PREPROCESS}{name}": PROVED if name in proved else f"{_UNPROVED}{text}"
                    for name, text in outcomes.items()
                },
            },
            seconds=round(time.perf_counter() - start, 3),
        ),
    )


def _check_caller(
    output: JobOutput, spec: ModelSpec, number: int, opset: int, caller: Caller
) -> tuple[Status, str, Mapping[str, str]]:
    """Return the verdict on a caller, the reason, "" if it passes, and what it says of inputs."""
    outcomes: Mapping[str, str] = {}
    file = output.folder.model(opset).resolve()
    folder = output.folder.temporary.resolve() / "callers" / f"{number}-{opset}"
    try:
        report = _run(output, spec, number, file, folder)
        problem = report.call.problem or _find_failed_run(report.runs)
        if problem:
            is_training = "No module named 'torch" in problem
            advice = "; a caller runs where PyTorch is not installed" if is_training else ""
            return Status.FAIL, f"{caller.name}: {problem}{advice}", outcomes
        references = locate_references(output.folder, number)
        problem = _compare_results(caller, report.runs, references, folder)
        if problem:
            return Status.FAIL, f"{caller.name}: {problem}", outcomes
        problem, outcomes = judge_preprocessing(
            spec, _read_inputs(folder, references, len(report.runs)), report.unprepared
        )
        if problem:
            return Status.FAIL, f"{caller.reference}: {problem}", outcomes
        if problem := _find_fixed_result(output, spec, number, folder):
            return Status.FAIL, f"{caller.name}: {problem}", outcomes
        if problem := _find_skipped(report.runs):
            return Status.INCONCLUSIVE, f"{caller.name}: {problem}", outcomes
        if _has_one_result(references, len(report.runs)):
            problem = "PyTorch has one result for all samples, so a caller that ignores them passes"
            text = f"{caller.name}: {problem}; name other samples"
            return Status.INCONCLUSIVE, text, outcomes
    except ChildFailure as failure:
        return Status.ERROR, format_message(f"{caller.name}: its process {failure}"), outcomes
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Status.PASS, "", outcomes


def _read_inputs(folder: Path, references: Path, count: int) -> list[tuple[Values, Values]]:
    """Return the prepared inputs of each sample, and those of the first call of the model."""
    names = [f"{index}.npz" for index in range(count)]
    return [
        (read_values(folder / PREPARED / name)[0], read_values(references / name)[1])
        for name in names
    ]


def _run(
    output: JobOutput,
    spec: ModelSpec,
    number: int,
    file: Path,
    results: Path,
    *,
    is_short: bool = False,
) -> CallerReport:
    arguments = {
        "root": output.root.resolve(),
        "spec": spec,
        "number": number,
        "file": file,
        "samples": locate_references(output.folder, number).resolve() / SAMPLES,
        "results": results,
        "is_short": is_short,
    }

    def log(line: str) -> None:
        sys.stdout.write(f"{line}\n")  # the output of this process is the log of the job

    # In the worker's process group, with its limit of memory.
    report = call_in_child(
        _FUNCTION, arguments, CallerReport, None, seconds=spec.timeout * _SHARE, on_line=log
    )
    output.add_report(report.call)
    return report


def _find_failed_run(runs: tuple[SampleRun, ...]) -> str:
    """Return the first failure of a run that is no wrong result."""
    for run in runs:
        if run.problem and not run.lines:  # after a run of the file, its input may be the reason
            return f"{run.name}: {run.problem}"
        if run.is_other_file:
            return f"{run.name}: runs another file than the path that it receives"
    return ""


def _find_skipped(runs: tuple[SampleRun, ...]) -> str:
    """Return a sample with the right result, for which a program did not run the file as usual."""
    skipped = next((run.name for run in runs if not run.lines), "")
    if not skipped or not any(run.lines for run in runs):
        return ""
    text = "has the right result, and runs the file for other samples only"
    return f"{skipped}: {text}, so it may be kept from before; name samples that need the file"


def _compare_results(
    caller: Caller, runs: tuple[SampleRun, ...], references: Path, folder: Path
) -> str:
    """Return the first difference with its reason, and the number of samples that differ."""
    first = ""
    different = 0
    for index, run in enumerate(runs):
        expected, *calls = read_values(references / f"{index}.npz")
        actual, *given = read_values(folder / f"{index}.npz")
        problem = run.problem or _compare_values(caller, actual, expected)
        if not problem and run.differs:
            return f"{run.name}: {run.differs} in a second run, after those of other samples"
        if not problem:
            continue
        different += 1
        if first:
            continue
        if not run.lines and any(each.lines for each in runs):
            reason = "it does not run the file for this sample"
        else:
            reason = explain_difference(
                _pair_calls(given, run.lines), _pair_calls(calls, ()), actual, expected
            )
        first = f"{run.name}: {f'{reason}; ' if reason else ''}{problem}"
    if different > 1:
        first += f" (the first of {pluralize(different, 'sample')} of {len(runs)})"
    return first


def _pair_calls(tables: list[Values], lines: tuple[str, ...]) -> list[Call]:
    """Return the runs of the file or the calls of the model from their tables."""
    pairs = zip(tables[::2], tables[1::2], strict=True)
    known = lines or [""] * len(tables)
    return [
        Call(inputs, outputs, line) for (inputs, outputs), line in zip(pairs, known, strict=False)
    ]


def _compare_values(caller: Caller, actual: Values, expected: Values) -> str:
    """Return how a result differs from PyTorch's, or ""."""
    if actual.keys() != expected.keys():
        names = [", ".join(map(name_value, values)) or "nothing" for values in (actual, expected)]
        return f"returns {names[0]}, PyTorch {names[1]}"
    for key, reference in expected.items():
        value = actual[key]
        if (value.dtype.kind == "U") is not (reference.dtype.kind == "U"):
            return f"{name_value(key)} is {value.dtype}, PyTorch gives {reference.dtype}"
        # Python has one integer and one float, so the program decides about the width only.
        is_float = "f" in (value.dtype.kind, reference.dtype.kind)
        dtype = np.float64 if is_float else _WIDE.get(reference.dtype.kind, value.dtype)
        wide = reference.astype(dtype)
        limit = _make_limit(caller, wide) if wide.dtype.kind in "fc" else None
        if problem := compare_arrays(value.astype(dtype), wide, limit, wide).problem:
            return f"{name_value(key)}: {problem.replace('(file ', '(caller ')}"
    return ""


def _make_limit(caller: Caller, reference: Array) -> Limit:
    if caller.atol is not None or caller.rtol is not None:
        return Limit(atol=caller.atol or 0.0, rtol=caller.rtol or 0.0, reason="tolerance")
    atol = _ATOL * measure_scale(reference)
    return Limit(atol=atol or _ATOL, rtol=_RTOL, reason="0.0001 of the scale and 0.001")


def _find_fixed_result(output: JobOutput, spec: ModelSpec, number: int, folder: Path) -> str:
    """Return a problem if the caller has its result without the file."""
    empty = folder / "empty" / "model.onnx"
    empty.parent.mkdir(parents=True)
    empty.write_bytes(b"")
    again = folder / "again"
    try:
        report = _run(output, spec, number, empty, again, is_short=True)
    except ChildFailure:
        return ""
    if report.call.problem or report.runs[0].problem:
        return ""
    return "has a result when its file is empty, so it runs another one"


def _has_one_result(references: Path, count: int) -> bool:
    first, *others = (read_values(references / f"{index}.npz")[0] for index in range(count))
    return all(
        first.keys() == other.keys()
        and all(np.array_equal(first[key], other[key]) for key in first)
        for other in others
    )
