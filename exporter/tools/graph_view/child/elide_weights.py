"""Weights in, a few words about them out: a graph is read for its nodes.

In: a model. Out: the same, with the values of large tensors replaced in place.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from exporter.checks.files.graph_walk import all_tensors

#: Tensors of so many elements are shown as they are.
_WHOLE = 8


def shorten(model: ModelProto) -> None:
    """Replaces the values of tensors of more than eight elements by what they range over.

    ONNX's text form has no word for values left out: they stand where it names external data.
    """
    for tensor in all_tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) > _WHOLE:
            said = _range(tensor)
            kept = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            tensor.CopyFrom(kept)
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="left out", value=said)


def _range(tensor: TensorProto) -> str:
    count = f"{math.prod(tensor.dims)} values"
    try:
        values = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, RuntimeError):
        return count
    if values.dtype.kind not in "fiub":
        return count
    return f"{count} from {values.min():.6g} to {values.max():.6g}"
