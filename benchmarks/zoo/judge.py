"""An independent judgement of an exported file: run it on many inputs next to PyTorch.

Input: a model, its contract and a file. Output: the first problem of the file, or "".
Nothing of the program's own checks is used; the tolerance is plain.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from benchmarks.zoo.draws import Tensors
from exporter.manifest import ModelSpec

#: The largest difference, relative to the largest absolute value of the output.
_TOLERANCE = 1e-3

Arrays = list[np.ndarray[Any, Any]]


def build_model(spec: ModelSpec, manifests: Path, seed: int) -> torch.nn.Module:
    """Build the model that an entry declares, with the seed of its weights."""
    if str(manifests) not in sys.path:
        sys.path.insert(0, str(manifests))
    file, _, attribute = spec.source.partition(":")
    source = getattr(importlib.import_module(Path(file).stem), attribute)
    torch.manual_seed(seed)
    model: torch.nn.Module = source(**_to_plain(dict(spec.init)))
    return model.eval()


def _to_plain(value: Any) -> Any:
    """Replace the frozen containers of a spec by lists and dicts."""
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return value


class BrokenModel(Exception):
    """PyTorch itself rejects inputs that the manifest promises."""


def run_eagerly(model: torch.nn.Module, inputs: Tensors) -> Arrays:
    """Return PyTorch's outputs.

    Raises:
        BrokenModel: The model raises an error.
    """
    try:
        with torch.no_grad():
            outputs = model(*(value.clone() for value in inputs.values()))
    except Exception as error:  # a model may raise any error
        raise BrokenModel(f"PyTorch itself fails: {_shorten(error)}") from error
    values = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return [value.numpy(force=True) for value in values]


class WrongFile(Exception):
    """A file does not keep a promise."""


def find_problem(
    path: Path, spec: ModelSpec, opset: int, sets: Sequence[tuple[Tensors, Arrays]]
) -> str:
    """Return the first problem of a file, or ""."""
    try:
        _check_header(onnx.load(path, load_external_data=False), spec, opset)
        session = _load(path)
        known = {item.name for item in session.get_inputs()}
        for inputs, expected in sets:
            feeds = {name: value.numpy() for name, value in inputs.items() if name in known}
            sizes = ", ".join(f"{name} {list(value.shape)}" for name, value in inputs.items())
            _compare(_run(session, feeds, sizes), expected, list_masks(spec, inputs), sizes)
    except WrongFile as problem:
        return str(problem).replace(f"{path.parent}/", "")
    return ""


def _load(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(
            path, sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # pybind11 classes without a common base
        raise WrongFile(f"does not load: {_shorten(error)}") from error


def _run(session: onnxruntime.InferenceSession, feeds: dict[str, Any], sizes: str) -> Sequence[Any]:
    try:
        outputs: Sequence[Any] = session.run(None, feeds)
    except Exception as error:  # pybind11 classes without a common base
        raise WrongFile(f"does not run at {sizes}: {_shorten(error)}") from error
    return outputs


def _check_header(model: onnx.ModelProto, spec: ModelSpec, opset: int) -> None:
    opsets = {item.domain: item.version for item in model.opset_import}
    if opsets.get("", opset) != opset:
        raise WrongFile(f"opset {opsets['']} instead of {opset}")
    for items, declared in ((model.graph.input, spec.inputs), (model.graph.output, spec.outputs)):
        names = [item.name for item in items]
        if names != [item.name for item in declared]:
            raise WrongFile(f"names {names}")
        for item, promise in zip(items, declared, strict=True):
            dims = item.type.tensor_type.shape.dim
            for dim, size in zip(dims, promise.shape, strict=False):
                if isinstance(size, str) and dim.HasField("dim_value"):
                    raise WrongFile(f"{item.name}: axis '{size}' is fixed at {dim.dim_value}")


def list_masks(spec: ModelSpec, inputs: Tensors) -> list[Any]:
    """Return for each output the positions that are compared, or True for all of them."""
    masks: list[Any] = []
    items = {item.name: item for item in spec.inputs}
    for output in spec.outputs:
        if not output.masked_by:
            masks.append(True)
            continue
        item = items[output.masked_by]
        mask = inputs[item.name].numpy() != (item.fill.kind == "padding")
        sizes = dict(zip(item.shape, mask.shape, strict=True))
        masks.append(mask.reshape([sizes.get(dim, 1) for dim in output.shape]))
    return masks


def _compare(actual: Sequence[Any], expected: Arrays, masks: Sequence[Any], sizes: str) -> None:
    if len(actual) != len(expected):
        raise WrongFile(f"{len(actual)} outputs instead of {len(expected)}")
    for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
        problem = _compare_output(one, other, masks[number])
        if problem:
            raise WrongFile(f"output {number} {problem} at {sizes}")


def _compare_output(
    one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], mask: Any = True
) -> str:
    if one.shape != other.shape or one.dtype != other.dtype:
        shapes = f"{one.dtype}{list(one.shape)} instead of {other.dtype}{list(other.shape)}"
        return f"has {shapes}"
    one, other = np.where(mask, one, 0), np.where(mask, other, 0)
    if other.dtype.kind not in "fc":
        different = int((one != other).sum())
        return f"differs in {different} elements" if different else ""
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return "has NaN or Inf at other places"
    finite = np.isfinite(other)
    scale = float(np.abs(other[finite]).max(initial=1e-30))
    error = float(np.abs(one[finite] - other[finite]).max(initial=0.0)) / scale
    return f"differs by {error:.1e} of its scale" if error > _TOLERANCE else ""


def _shorten(error: Exception) -> str:
    lines = " ".join(str(error).split())
    return f"{type(error).__name__}: {lines[:300]}"
