"""Weights under the names that the manifest gives them: part of `signature`.

In: a file and what PyTorch knows of each weight. Out: every weight that is not there under its
name with its own values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from onnx import ModelProto, TensorProto, numpy_helper
from onnx.checker import ValidationError

from exporter.checks.protocol import CheckContext
from exporter.jobs.reference import NamedWeight
from exporter.runtimes.dtypes import dtype_name

_KEEP = (
    "`options.do_constant_folding = false` (TorchScript) or `options.optimize = false` (dynamo) "
    "keeps weights as they are"
)


def weight_problems(subject: CheckContext, model: ModelProto) -> Iterator[str]:
    """What is wrong with the names of weights; nothing where the manifest names none."""
    weights = subject.reference.weights
    if not weights:
        return
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs = {item.name for item in model.graph.input}
    digests: dict[str, str] = {}
    is_outside = subject.spec.options.get("export_params") is False
    for weight in weights:
        tensor = stored.get(weight.name)
        if tensor is not None:
            yield from _difference(subject, weight, tensor)
        elif weight.is_read and not (is_outside and weight.name in inputs):
            digests = digests or {_digest(subject, item): item.name for item in stored.values()}
            yield _missing(weight, digests.get(weight.sha256, ""))


def _missing(weight: NamedWeight, other: str) -> str:
    said = f"no weight is called '{weight.name}' ({weight.source})"
    if other:
        return f"{said}: it is called '{other}'"
    return f"{said}: the exporter made another one of it; {_KEEP}"


def _difference(subject: CheckContext, weight: NamedWeight, tensor: TensorProto) -> Iterator[str]:
    what = f"the weight '{weight.name}' is not {weight.source}"
    dtype, shape = dtype_name(tensor.data_type), tuple(tensor.dims)
    if (dtype, shape) != (weight.dtype, weight.shape):
        has, needs = f"{dtype} {list(shape)}", f"{weight.dtype} {list(weight.shape)}"
        yield f"{what}: it is {has}, and not {needs}"
    elif _digest(subject, tensor) != weight.sha256:
        yield f"{what}: it has other values"


def _digest(subject: CheckContext, tensor: TensorProto) -> str:
    try:
        array = numpy_helper.to_array(tensor, base_dir=str(subject.path.parent))
    except (OSError, ValueError, RuntimeError, TypeError, ValidationError):
        return ""  # what cannot be read, `wellformed` says
    return hashlib.sha256(array.tobytes()).hexdigest()
