"""The usual loop: one export, check, session and comparison for each opset.

    python benchmarks/loop.py MANIFEST DIRECTORY

Input: a manifest of models with `source`, `inputs`, `outputs`, `axes` and `opsets`, read as the
list that such a script contains. Output: `DIRECTORY/<model>-<opset>.onnx`, and a line for each on
stdout. The loop does not use `exporter`. It runs in one process and is written as well as such
loops are: it builds a model and runs PyTorch once for all its opsets.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    RuntimeException,
)
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

#: Failures of the exporter (RuntimeError), the checker, ONNX Runtime and the comparison. The loop
#: counts them and continues. Any other exception ends the benchmark.
REFUSALS = (
    RuntimeError,
    onnx.checker.ValidationError,
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented_,
    RuntimeException,
    AssertionError,
)
#: Sizes of dynamic axes, in order of appearance.
SIZES = (3, 5, 7, 11)


def load(path: Path) -> ModuleType:
    """Import a model's file as a module."""
    sys.path.insert(0, str(path.parent.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def draw(entry: dict[str, Any], sizes: dict[str, int]) -> torch.Tensor:
    """Return one input."""
    shape = [sizes.setdefault(n, SIZES[len(sizes)]) if isinstance(n, str) else n
             for n in entry["shape"]]  # fmt: skip
    match entry.get("fill"):
        case {"randint": [low, high]}:
            return torch.randint(low, high, shape)
        case {"bernoulli": share}:
            return torch.bernoulli(torch.full(shape, share)).to(torch.int64)
        case _:
            return torch.randn(shape)


def prepare(folder: Path, entry: dict[str, Any]) -> tuple[Any, ...]:
    """Return the model, its call, its dynamic shapes and PyTorch's outputs."""
    place, _, attribute = entry["source"].partition(":")
    torch.manual_seed(0)
    model = getattr(load(folder / place), attribute)(**entry.get("init", {})).eval()
    sizes: dict[str, int] = {}
    tensors = {item["name"]: draw(item, sizes) for item in entry["inputs"]}
    limits = {name: axis.get("max") for name, axis in entry.get("axes", {}).items()}
    dims = {name: torch.export.Dim(name, max=limits.get(name)) for name in sizes}
    shapes = {
        item["name"]: {axis: dims[n] for axis, n in enumerate(item["shape"]) if isinstance(n, str)}
        for item in entry["inputs"]
    }
    by_name = any(item.get("at", "").startswith("kwargs.") for item in entry["inputs"])
    args, kwargs = ((), tensors) if by_name else (tuple(tensors.values()), {})
    dynamic = shapes if by_name else tuple(shapes.values())
    with torch.no_grad():
        said = model(*args, **kwargs)
    wanted = [said] if isinstance(said, torch.Tensor) else list(said)
    return model, args, kwargs, dynamic, tensors, wanted


def main() -> None:
    """Export every model at every opset."""
    manifest, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, entry in tomllib.loads(manifest.read_text(encoding="utf-8"))["models"].items():
        model, args, kwargs, dynamic, tensors, wanted = prepare(manifest.parent, entry)
        low, high = map(int, entry["opsets"].split(".."))
        for opset in range(low, high + 1):
            start = time.perf_counter()
            path = out / f"{name}-{opset}.onnx"
            try:
                torch.onnx.export(
                    model,
                    args,
                    str(path),
                    kwargs=kwargs,
                    dynamo=True,
                    opset_version=opset,
                    dynamic_shapes=dynamic,
                    input_names=list(tensors),
                    output_names=[item["name"] for item in entry["outputs"]],
                    verbose=False,
                )
                onnx.load(path)
                onnx.checker.check_model(path, full_check=True)
                session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
                found = session.run(None, {key: value.numpy() for key, value in tensors.items()})
                for mine, theirs in zip(found, wanted, strict=True):
                    np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-3, atol=1e-4)
            except REFUSALS as error:
                words = " ".join(str(error).split())[:200]
                print(f"{name}/{opset} failed: {type(error).__name__}: {words}", flush=True)
            else:
                print(f"{name}/{opset} ok {time.perf_counter() - start:.2f}", flush=True)


if __name__ == "__main__":
    main()
