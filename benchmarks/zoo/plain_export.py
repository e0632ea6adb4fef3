"""Files of plain `torch.onnx.export` calls, as an expert would write them by hand.

Input: a module, its inputs and their axes. Output: a file for each way to call the exporter, until
one of them is right.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from benchmarks.zoo.draws import Tensors
from exporter.manifest import ModelSpec

#: The first opset that dynamo writes.
_DYNAMO = 18


class PlainFailure(Exception):
    """A plain call of the exporter failed."""


def export_plainly(
    model: torch.nn.Module, spec: ModelSpec, opset: int, inputs: Tensors, folder: Path
) -> Iterator[tuple[str, Path | PlainFailure]]:
    """Yield the name of each way, and its file or the error of the exporter."""
    ways: dict[str, tuple[bool, Any]] = {
        "without gradients": (False, _make_hint),
        "with gradients": (True, _make_hint),
    }
    if opset >= _DYNAMO:
        ways["with inferred axes"] = (False, lambda *_: Dim.AUTO)
    for number, (name, (gradients, hint)) in enumerate(ways.items()):
        path = folder / f"{opset}-{number}.onnx"
        failure = _export_alone(model, spec, opset, inputs, path, (gradients, hint))
        yield name, PlainFailure(failure) if failure else path


def _export_alone(
    model: torch.nn.Module,
    spec: ModelSpec,
    opset: int,
    inputs: Tensors,
    path: Path,
    way: tuple[bool, Any],
) -> str:
    """Export in a process of its own, because torch captures some models only once in a process.

    Returns:
        The error of the exporter, or "".
    """
    gradients, hint = way
    failure = path.with_suffix(".txt")

    def export() -> None:
        try:
            with torch.set_grad_enabled(gradients):
                _export(model, spec, opset, inputs, path, hint)
        except PlainFailure as error:
            failure.write_text(str(error), encoding="utf-8")

    process = multiprocessing.get_context("fork").Process(target=export)
    process.start()
    process.join()
    if failure.is_file():
        return failure.read_text(encoding="utf-8")
    return f"exit code {process.exitcode}" if process.exitcode or not path.is_file() else ""


def _export(
    model: torch.nn.Module, spec: ModelSpec, opset: int, inputs: Tensors, path: Path, hint: Any
) -> None:
    common: dict[str, Any] = {
        "input_names": [item.name for item in spec.inputs],
        "output_names": [item.name for item in spec.outputs],
        "opset_version": opset,
    }
    if opset >= _DYNAMO:
        shapes = tuple(
            {n: hint(spec, dim) for n, dim in enumerate(item.shape) if isinstance(dim, str)}
            for item in spec.inputs
        )
        common |= {"dynamo": True, "dynamic_shapes": shapes, "verbose": False}
    else:
        axes = {
            item.name: {n: dim for n, dim in enumerate(item.shape) if isinstance(dim, str)}
            for item in (*spec.inputs, *spec.outputs)
        }
        common |= {"dynamo": False, "dynamic_axes": axes}
    try:
        torch.onnx.export(model, tuple(inputs.values()), str(path), **common)
    except Exception as error:  # an exporter may raise any error
        # Dynamo's own message contains only advice; its cause has the reason.
        reason = error.__cause__ or error
        message = " ".join(str(reason).split())[:200]
        raise PlainFailure(f"{type(reason).__name__}: {message}") from error


def _make_hint(spec: ModelSpec, name: str) -> Any:
    axis = spec.find_axis(name)
    step = axis.multiple_of
    if step > 1:
        low, high = -(-axis.min // step), None if axis.max is None else axis.max // step
        return step * Dim(f"_{name}", min=low, max=high)
    return Dim.DYNAMIC(min=axis.min if axis.min > 1 else None, max=axis.max)
