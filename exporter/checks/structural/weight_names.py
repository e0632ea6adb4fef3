"""Weights have the names of the manifest: a part of the check `signature`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from onnx import ModelProto, TensorProto, numpy_helper
from onnx.checker import ValidationError

from exporter.checks.protocol import CheckContext
from exporter.runtimes.dtypes import format_dtype

_FIX = (
    "set `options.do_constant_folding = false` (TorchScript) or `options.optimize = false` "
    "(dynamo) to keep weights as they are"
)


def find_weight_name_problems(context: CheckContext, model: ModelProto) -> Iterator[str]:
    """Yield the problems of named weights; nothing if the manifest names no weight."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs = {item.name for item in model.graph.input}
    are_inputs = context.spec.options.get("export_params") is False
    digests: dict[str, str] = {}
    for weight in context.reference.weights:
        tensor = stored.get(weight.name)
        if tensor is not None:
            subject = f"the weight '{weight.name}' is not {weight.source}"
            actual = (format_dtype(tensor.data_type), tuple(tensor.dims))
            if actual != (weight.dtype, weight.shape):
                yield (
                    f"{subject}: it is {actual[0]} {list(actual[1])}, "
                    f"expected {weight.dtype} {list(weight.shape)}"
                )
            elif _hash_values(context, tensor) != weight.sha256:
                yield f"{subject}: it has other values"
        elif weight.is_read and not (are_inputs and weight.name in inputs):
            digests = digests or {_hash_values(context, t): t.name for t in stored.values()}
            other = digests.get(weight.sha256, "")
            cause = f"it has the name '{other}'" if other else f"the exporter replaced it; {_FIX}"
            yield f"no weight has the name '{weight.name}' ({weight.source}): {cause}"


def _hash_values(context: CheckContext, tensor: TensorProto) -> str:
    """Return the digest of the values, or "" if they cannot be read."""
    try:
        array = numpy_helper.to_array(tensor, base_dir=str(context.path.parent))
    except (OSError, ValueError, RuntimeError, TypeError, ValidationError):
        return ""  # the check `wellformed` reports it
    return hashlib.sha256(array.tobytes()).hexdigest()
