"""A test of a published folder at a path at which it was not written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto

from exporter.checks.comparison.masked_positions import find_compared_positions
from exporter.checks.files.external_data import find_external_data_problems
from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.core.text import join_lines, truncate
from exporter.manifest import Device, ModelSpec
from exporter.runtimes import (
    LoadFailure,
    RunFailure,
    RuntimeUnavailable,
    Session,
    load_kernels,
    open_session,
)
from exporter.runtimes.values import Array
from exporter.tools.publish.child.data_sets import read_data_set
from exporter.tools.publish.protocol import (
    Allowance,
    PublishRequest,
    PublishTarget,
    TargetResult,
)

_PROBLEM_LENGTH = 300
#: The runtime if none of the target's devices is available.
_CPU = Device(name="ONNX Runtime on the CPU", runtime="onnxruntime")


def verify_folder(request: PublishRequest, target: PublishTarget) -> TargetResult:
    """Load one published file and run it on its test data."""
    notes: list[str] = []
    folder = Path(target.folder)
    problems = tuple(
        truncate(join_lines(problem.replace(f"{folder}/", "")), _PROBLEM_LENGTH)
        for problem in _find_problems(request, target, notes)
    )
    return TargetResult(opset=target.opset, problems=problems, notes=tuple(notes))


def _find_problems(
    request: PublishRequest, target: PublishTarget, notes: list[str]
) -> Iterator[str]:
    folder = Path(target.folder)
    try:
        kernels = load_kernels(request.spec, Path(request.root))
    except Exception as error:
        yield f"its kernels cannot be loaded: {error}"
        return
    path = folder / "model.onnx"
    try:
        model = read_model(path)
    except UnreadableModel as error:
        yield str(error)
        return
    if problems := tuple(find_external_data_problems(model, folder)):
        yield from problems
        return
    for device in (*target.devices, _CPU):
        try:
            session = open_session(path, device, kernels)
        except RuntimeUnavailable as error:
            notes.append(f"not loaded on {device.name}, which is unavailable: {error}")
        except LoadFailure as error:
            yield f"{device.name} refuses it: {error}"
            return
        else:
            yield from _run_data_sets(model, session, request.spec, target, device.name)
            return
    yield f"no runtime is available: {notes[-1]}"


def _run_data_sets(
    model: ModelProto, session: Session, spec: ModelSpec, target: PublishTarget, device: str
) -> Iterator[str]:
    data_sets = sorted(Path(target.folder).glob("test_data_set_*"))
    if not data_sets:
        yield "it has no test data"
    names = [item.name for item in model.graph.output]
    for data_set in data_sets:
        try:
            inputs, expected = read_data_set(model, data_set)
            given = {name: value for name, value in inputs.items() if value is not None}
            actual = session.run(given)
        except (OSError, DecodeError, ValueError, TypeError) as error:
            yield f"{data_set.name} cannot be read: {error}"
        except RunFailure as error:
            yield f"{device} fails on {data_set.name}: {error}"
        else:
            allowances = {item.output: item for item in target.allowed}
            positions = find_allowed_positions(
                spec, given, dict(zip(names, expected, strict=False))
            )
            for problem in find_differences(names, actual, expected, allowances, positions):
                yield f"{device}, {data_set.name}: {problem}"


def find_allowed_positions(
    spec: ModelSpec, inputs: Mapping[str, Any], expected: Mapping[str, object]
) -> dict[str, Array]:
    """Return the positions that a mask allows, for each output with one."""
    positions = {}
    for index, output in enumerate(spec.outputs):
        value = expected.get(output.name)
        if isinstance(value, np.ndarray):
            allowed = find_compared_positions(spec, index, inputs, value.shape)
            if allowed is not None and allowed.any():
                positions[output.name] = allowed
    return positions


def find_differences(
    names: Sequence[str],
    actual: Sequence[object],
    expected: Sequence[object],
    allowed: Mapping[str, Allowance],
    positions: Mapping[str, Array] | None = None,
) -> Iterator[str]:
    """Yield each output that differs from the test data by more than its tolerance.

    Args:
        names: The outputs of the file.
        actual: The values of the file.
        expected: The values of the test data.
        allowed: The tolerances by output.
        positions: The positions that are compared, for outputs with a mask.
    """
    if not len(names) == len(actual) == len(expected):
        yield (f"{len(actual)} outputs, {len(expected)} in the test data, {len(names)} in the file")
        return
    for name, value, reference in zip(names, actual, expected, strict=True):
        limit = allowed.get(name, Allowance(output=name, atol=0.0, rtol=0.0))
        if isinstance(value, list) and isinstance(reference, list):
            if len(value) != len(reference):
                yield f"output '{name}' has {len(value)} items, not {len(reference)}"
                continue
            pairs = list(zip(value, reference, strict=True))
        elif isinstance(value, list) or isinstance(reference, list):
            yield f"output '{name}' has another kind of value"
            continue
        else:
            pairs = [(value, reference)]
        for pair in pairs:
            if difference := _compare_tensors(*pair, limit, (positions or {}).get(name)):
                yield f"output '{name}' {difference}"


def _compare_tensors(
    actual: Any, expected: Any, limit: Allowance, positions: Array | None = None
) -> str:
    """Return the difference of two tensors, "" if it is within the tolerance."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return (
            f"is {actual.dtype} {list(actual.shape)}, not {expected.dtype} {list(expected.shape)}"
        )
    if positions is not None:
        actual, expected = actual[positions], expected[positions]
    if actual.dtype.kind in "OSUbiu":
        return "" if np.array_equal(actual, expected) else "differs"
    if actual.dtype.kind not in "fc":  # numpy cannot compare bfloat16 and float8
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    near = np.isclose(actual, expected, rtol=limit.rtol, atol=limit.atol, equal_nan=True)
    share = 1.0 - float(near.mean()) if near.size else 0.0
    if share <= limit.outside:
        return ""
    return f"differs in {share:.2%} of its elements by more than the tolerance"
