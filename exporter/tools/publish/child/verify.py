"""A published folder at a place where it was not made: whole, valid, and it still computes.

In: a `PublishTarget` whose folder is a copy. Out: what is wrong with it. Nothing outside the folder is
read but the kernels of custom operators, which no ONNX file holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto

from exporter.checks.files.external_data import find_external_data_problems
from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.core.sanitize import join_lines, truncate
from exporter.manifest import Device
from exporter.runtimes import (
    Kernels,
    LoadFailure,
    RunFailure,
    RuntimeUnavailable,
    Session,
    load_kernels,
    open_session,
)
from exporter.tools.publish.child.data_sets import read_data_set
from exporter.tools.publish.protocol import (
    Allowance,
    PublishRequest,
    PublishTarget,
    TargetResult,
)

_LENGTH = 300
_CPU = Device(name="ONNX Runtime on the CPU", runtime="onnxruntime")


def verify_folder(request: PublishRequest, target: PublishTarget) -> TargetResult:
    """Checks, loads and runs one published file."""
    notes: list[str] = []
    try:
        kernels = load_kernels(request.spec, Path(request.root))
    except Exception as error:
        return _finding(target, [f"its kernels cannot be loaded: {error}"], notes)
    return _finding(target, list(_problems(target, kernels, notes)), notes)


def _finding(target: PublishTarget, problems: Sequence[str], notes: Sequence[str]) -> TargetResult:
    said = tuple(_shortened(text, Path(target.folder)) for text in problems)
    return TargetResult(opset=target.opset, problems=said, notes=tuple(notes))


def _problems(target: PublishTarget, kernels: Kernels, notes: list[str]) -> Iterator[str]:
    folder = Path(target.folder)
    path = folder / "model.onnx"
    try:
        model = read_model(path)
    except UnreadableModel as unreadable:
        yield str(unreadable)
        return
    outside = tuple(find_external_data_problems(model, folder))
    yield from outside
    if outside:
        return
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        yield f"onnx.checker refuses it: {error}"
        return
    sessions = 0
    for device in (*target.devices, _CPU):
        if device is _CPU and sessions:
            continue  # asked only where none of the file's own devices is here
        try:
            session = open_session(path, device, kernels)
        except RuntimeUnavailable as missing:
            notes.append(f"not loaded on {device.name}, which is not here: {missing}")
            continue
        except LoadFailure as refused:
            yield f"{device.name} refuses it: {refused}"
            continue
        sessions += 1
        yield from _run(model, folder, session, target.allowed, device.name)
    if not sessions and notes:
        yield f"nothing here could run it: {notes[-1]}"


def _run(
    model: ModelProto,
    folder: Path,
    session: Session,
    allowed: Sequence[Allowance],
    device: str,
) -> Iterator[str]:
    sets = sorted(folder.glob("test_data_set_*"))
    if not sets:
        yield "it has no test data"
    for each in sets:
        try:
            inputs, outputs = read_data_set(model, each)
            given = {name: value for name, value in inputs.items() if value is not None}
            found = session.run(given)
        except (OSError, DecodeError, ValueError, TypeError) as error:
            yield f"{each.name} cannot be read: {error}"
        except RunFailure as failure:
            yield f"{device} fails on {each.name}: {failure}"
        else:
            names = [item.name for item in model.graph.output]
            by_name = {item.output: item for item in allowed}
            for problem in find_differences(names, found, outputs, by_name):
                yield f"{device}, {each.name}: {problem}"


def find_differences(
    names: Sequence[str],
    found: Sequence[object],
    wanted: Sequence[object],
    allowed: Mapping[str, Allowance],
) -> Iterator[str]:
    """Where outputs are not those of the test data, by the tolerance that is published."""
    if not len(names) == len(found) == len(wanted):
        yield f"{len(found)} outputs, {len(wanted)} in the test data, {len(names)} in the file"
        return
    for name, one, other in zip(names, found, wanted, strict=True):
        limit = allowed.get(name, Allowance(output=name, atol=0.0, rtol=0.0))
        if isinstance(other, list) != isinstance(one, list):
            yield f"output '{name}' is another kind of value"
        elif isinstance(other, list) and isinstance(one, list):
            if len(one) != len(other):
                yield f"output '{name}' has {len(one)} items, not {len(other)}"
                continue
            pairs = zip(one, other, strict=True)
            yield from (f"output '{name}' {said}" for pair in pairs if (said := _off(*pair, limit)))
        elif said := _off(one, other, limit):
            yield f"output '{name}' {said}"


def _off(one: Any, other: Any, limit: Allowance) -> str:
    """How a tensor differs; empty where it is as published."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"is {one.dtype} {list(one.shape)}, not {other.dtype} {list(other.shape)}"
    if one.dtype.kind in "OSUbiu":
        return "" if np.array_equal(one, other) else "differs"
    if one.dtype.kind not in "fc":  # bfloat16 and the like, which numpy cannot compare
        one, other = one.astype(np.float64), other.astype(np.float64)
    near = np.isclose(one, other, rtol=limit.rtol, atol=limit.atol, equal_nan=True)
    share = 1.0 - float(near.mean()) if near.size else 0.0
    if share <= limit.outside:
        return ""
    return f"differs in {share:.2%} of its elements by more than is published"


def _shortened(text: str, folder: Path) -> str:
    return truncate(join_lines(text.replace(f"{folder}/", "")), _LENGTH)
