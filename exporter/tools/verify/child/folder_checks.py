"""The checks of a published folder: its hashes, its file, and its outputs on one device.

The structure checks are those of an export. The outputs are compared with PyTorch's outputs in the
folder, with the tolerances that were computed when the folder was published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto

from exporter.checks import STRUCTURE_CHECKS
from exporter.checks.comparison.compare_samples import find_undeclared_outputs
from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.checks.numerical.placement import PlacementCheck
from exporter.checks.numerical.sample_checks import SAMPLE_KINDS
from exporter.checks.protocol import CheckContext
from exporter.checks.structural.domains import explain_missing_kernel
from exporter.core.check_names import LOAD_CHECK
from exporter.core.text import join_names, pluralize
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference
from exporter.manifest import Device
from exporter.records.record import CheckResult, Status
from exporter.runtimes import (
    NO_KERNELS,
    Kernels,
    LoadFailure,
    RunFailure,
    RuntimeUnavailable,
    Session,
    load_kernels,
    open_session,
)
from exporter.runtimes.values import Array, OnnxValue, list_items
from exporter.tools.publish.child.data_sets import read_data_set
from exporter.tools.publish.child.verify import find_allowed_positions, find_differences
from exporter.tools.publish.protocol import DataSet
from exporter.tools.publish.published_folder import MODEL, find_hash_problems
from exporter.tools.verify.protocol import DeviceVerdict, VerifyRequest, VerifyResponse

_FILES_CHECK = "files"
_CHECKS = {kind: check for check, kind in SAMPLE_KINDS.items()}
#: Problems of one check in a message.
_SHOWN_PROBLEMS = 3
_DATA_SET = re.compile(r"test_data_set_\d+")
_NO_KERNELS = (
    "it needs kernels of custom operators; run the command in the project of the entry, or pass "
    "the project's folder as --root"
)


def check_folder(request: VerifyRequest) -> VerifyResponse:
    """Prove one published folder on every device."""
    context = _make_context(request)
    shared = (
        _check_files(request),
        *(check(context) for check in STRUCTURE_CHECKS),
    )
    verdicts = (_check_on_device(request, context, device, shared) for device in request.devices)
    return VerifyResponse(verdicts=tuple(verdicts))


def _make_context(request: VerifyRequest) -> CheckContext:
    folder, publication = Path(request.folder), request.publication
    return CheckContext(
        folder=JobFolder(folder),
        opset=publication.opset,
        spec=request.spec,
        reference=Reference(
            samples=(),
            noise=(),
            output_spread=(),
            weights=publication.weights,
            weight_inputs=publication.weight_inputs,
        ),
        file=Path(request.file) if request.file else folder / MODEL,
    )


def _check_files(request: VerifyRequest) -> CheckResult:
    """Compare the files with the hashes, the data sets with the list, and read the old verdict."""
    folder, publication = Path(request.folder), request.publication
    try:
        problems = list(find_hash_problems(folder))
    except (OSError, ValueError) as error:
        problems = [f"SHA256SUMS cannot be read: {error}"]
    expected = {item.folder for item in publication.data_sets}
    actual = {path.name for path in folder.glob("test_data_set_*")}
    if expected != actual:
        names = join_names(sorted(expected ^ actual))
        problems.append(f"the data sets differ from those in exporter.json: {names}")
    if not publication.is_green and not request.file:
        problems.append(f"it was published although it is red: {publication.warning}")
    return _conclude(_FILES_CHECK, problems)


def _check_on_device(
    request: VerifyRequest, context: CheckContext, device: Device, shared: Sequence[CheckResult]
) -> DeviceVerdict:
    try:
        kernels = _load_kernels(request)
        session = open_session(context.path, device, kernels)
    except RuntimeUnavailable as error:
        load = CheckResult(check=LOAD_CHECK, status=Status.UNAVAILABLE, message=str(error))
        results = [*shared, load]
    except LoadFailure as error:
        reason = explain_missing_kernel(context, device)
        status = Status.UNAVAILABLE if reason else Status.ERROR
        results = [
            *shared,
            CheckResult(check=LOAD_CHECK, status=status, message=reason or str(error)),
        ]
    else:
        placement = PlacementCheck()(context, session, device.name)
        results = [*shared, placement, *_compare_data_sets(request, context, session)]
    not_passed = [each for each in results if each.status is not Status.PASS]
    # A failed structure check is not hidden by a missing runtime.
    not_passed.sort(key=lambda each: not each.status.is_red)
    first = not_passed[0] if not_passed else CheckResult(check="", status=Status.PASS)
    return DeviceVerdict(
        device=device.name,
        status=first.status,
        check=first.check,
        message=first.message,
        checks=tuple(results),
    )


def _load_kernels(request: VerifyRequest) -> Kernels:
    if not any(op.ort_library or op.reference for op in request.spec.custom_ops):
        return NO_KERNELS
    if request.kernels is None:
        raise RuntimeUnavailable(_NO_KERNELS)
    try:
        return load_kernels(request.kernels, Path(request.root))
    except Exception as error:
        raise RuntimeUnavailable(f"the kernels cannot be loaded: {error}") from error


@dataclass(slots=True)
class _CheckedSets:
    """The data sets of one check."""

    problems: list[str]
    count: int = 0
    max_abs: float = 0.0


def _compare_data_sets(
    request: VerifyRequest, context: CheckContext, session: Session
) -> Iterator[CheckResult]:
    """Yield one result for each kind of data set; the declared inputs are always necessary."""
    comparisons = {_CHECKS["declared"]: _CheckedSets([])}
    try:
        model = read_model(context.path)
    except UnreadableModel:  # the structure checks report it
        return
    for data_set in request.publication.data_sets:
        check = _CHECKS.get(data_set.kind, _CHECKS["declared"])
        comparison = comparisons.setdefault(check, _CheckedSets([]))
        comparison.count += 1
        problems, error = _compare_data_set(request, model, session, data_set)
        comparison.problems += (f"{data_set.name}: {problem}" for problem in problems)
        comparison.max_abs = max(comparison.max_abs, error)
    for check, comparison in comparisons.items():
        if not comparison.count:
            message = "the folder has no test data for the declared inputs: nothing was compared"
            yield CheckResult(check=check, status=Status.ERROR, message=message)
            continue
        metrics = {"samples": comparison.count, "max_abs": comparison.max_abs}
        yield _conclude(check, comparison.problems).model_copy(update={"metrics": metrics})


def _compare_data_set(
    request: VerifyRequest, model: ModelProto, session: Session, data_set: DataSet
) -> tuple[list[str], float]:
    """Return the differences of one data set, and the largest error."""
    if not _DATA_SET.fullmatch(data_set.folder):
        return [f"{data_set.folder!r} is not the name of a data set"], 0.0
    names = [item.name for item in model.graph.output]
    spec = request.spec
    try:
        inputs, expected = read_data_set(model, Path(request.folder) / data_set.folder)
        given = {name: value for name, value in inputs.items() if value is not None}
        actual = session.run(given)
    except (OSError, DecodeError, ValueError, TypeError) as error:
        return [f"{data_set.folder} cannot be read: {error}"], 0.0
    except RunFailure as error:
        return [f"the runtime fails: {error}"], 0.0
    by_name: dict[str, Any] = dict(zip(names, expected, strict=True))
    problems: list[str] = []
    if names == [output.name for output in spec.outputs]:  # the check `signature` reports others
        values = list(by_name.values())
        problems += find_undeclared_outputs(spec.outputs, values, data_set.axes)
    allowances = {item.output: item for item in request.publication.allowed}
    positions = find_allowed_positions(spec, given, by_name)
    problems += find_differences(names, actual, expected, allowances, positions)
    return problems, _measure_error(dict(zip(names, actual, strict=False)), by_name, positions)


def _measure_error(
    actual: Mapping[str, OnnxValue],
    expected: Mapping[str, OnnxValue],
    positions: Mapping[str, Array],
) -> float:
    """Return the largest difference of the float outputs, at the compared positions."""
    largest = 0.0
    for name, value in actual.items():
        for one, other in zip(list_items(value), list_items(expected[name]), strict=False):
            if one.shape != other.shape or one.dtype.kind not in "fc":
                continue
            difference = np.abs(one - other)[positions.get(name, ...)]
            finite = difference[np.isfinite(difference)]
            largest = max(largest, float(finite.max(initial=0.0)))
    return largest


def _conclude(check: str, problems: Sequence[str]) -> CheckResult:
    if not problems:
        return CheckResult(check=check, status=Status.PASS)
    shown = problems[:_SHOWN_PROBLEMS]
    more = len(problems) - len(shown)
    text = "; ".join((*shown, *([pluralize(more, "more problem")] if more else [])))
    return CheckResult(check=check, status=Status.FAIL, message=text)
