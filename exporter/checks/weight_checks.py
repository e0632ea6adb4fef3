"""The weights of a file by their names: as stored tensors, or as inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence

from onnx import ModelProto, TensorProto, ValueInfoProto, numpy_helper
from onnx.checker import ValidationError

from exporter.checks.protocol import CheckedFile
from exporter.core.text import join_names
from exporter.jobs import Weight
from exporter.runtimes.graph_walk import format_dtype

_FIX = (
    "set `options.do_constant_folding = false` (TorchScript) or `options.optimize = false` "
    "(dynamo) to keep weights as they are"
)


def find_weight_name_problems(checked: CheckedFile, proto: ModelProto) -> Iterator[str]:
    """Yield the problems of named weights; nothing if the manifest names no weight."""
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    inputs = {item.name for item in proto.graph.input}
    are_inputs = checked.spec.options.get("export_params") is False
    digests: dict[str, str] = {}
    for weight in checked.reference.weights:
        tensor = stored.get(weight.name)
        if tensor is not None:
            subject = f"the weight '{weight.name}' is not {weight.source}"
            actual = (format_dtype(tensor.data_type), tuple(tensor.dims))
            if actual != (weight.dtype, weight.shape):
                yield (
                    f"{subject}: it is {actual[0]} {list(actual[1])}, "
                    f"expected {weight.dtype} {list(weight.shape)}"
                )
            elif _hash_values(checked, tensor) != weight.sha256:
                yield f"{subject}: it has other values"
        elif weight.is_read and not (are_inputs and weight.name in inputs):
            digests = digests or {_hash_values(checked, t): t.name for t in stored.values()}
            other = digests.get(weight.sha256, "")
            cause = f"it has the name '{other}'" if other else f"the exporter replaced it; {_FIX}"
            yield f"no weight has the name '{weight.name}' ({weight.source}): {cause}"


def _hash_values(checked: CheckedFile, tensor: TensorProto) -> str:
    """Return the digest of the values, or "" if they cannot be read."""
    try:
        array = numpy_helper.to_array(tensor, base_dir=str(checked.path.parent))
    except (OSError, ValueError, RuntimeError, TypeError, ValidationError):
        return ""  # the check `wellformed` reports a file that cannot be read
    return hashlib.sha256(array.tobytes()).hexdigest()


def find_weight_input_problems(
    proto: ModelProto, weights: Sequence[Weight], declared: Collection[str], needed: Collection[str]
) -> Iterator[str]:
    """Yield the differences between the undeclared inputs and the weights.

    `weights`: The entries of the `state_dict`, in order.
    `needed`: Every name that the outputs depend on.
    """
    weights_by_name = {weight.name: weight for weight in weights if weight.name not in declared}
    names = [item.name for item in proto.graph.input]
    inputs = [name for name in names if name in weights_by_name]
    stored = [tensor.name for tensor in proto.graph.initializer if tensor.name in weights_by_name]
    if stored:
        yield f"{_count_weights(stored)} stored in the file: {join_names(stored)}"
    missing = []
    for weight in weights_by_name.values():
        # Another name of the same tensor is enough.
        aliases = {item.name for item in weights if item.same_as == weight.name} | {weight.name}
        is_required = weight.is_read and not weight.same_as and weight.name not in stored
        if is_required and aliases.isdisjoint(inputs):
            missing.append(weight.name)
    if missing:
        yield f"{_count_weights(missing)} not an input of the file: {join_names(missing)}"
    if inputs != [name for name in weights_by_name if name in set(inputs)]:
        yield f"weights have another order than in the state_dict: {join_names(inputs)}"
    elif any(name in declared for name in names[len(names) - len(inputs) :]):
        yield "weights come before declared inputs"
    for item in proto.graph.input:
        if item.name in weights_by_name:
            yield from _compare_weight(item, weights_by_name[item.name])
            if item.name not in needed:
                yield f"the graph ignores the weight '{item.name}'"


def _compare_weight(item: ValueInfoProto, weight: Weight) -> Iterator[str]:
    tensor = item.type.tensor_type
    dtype = format_dtype(tensor.elem_type)
    if dtype != weight.dtype:
        yield f"the weight '{item.name}' is {dtype}, expected {weight.dtype}"
    dims = tensor.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]
    if shape != list(weight.shape):
        yield f"the weight '{item.name}' is {shape}, expected {list(weight.shape)}"


def _count_weights(names: Sequence[str]) -> str:
    return "1 weight is" if len(names) == 1 else f"{len(names)} weights are"
