"""The text form of a model, with a summary in place of large weights."""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper, printer

from exporter.core.sanitize import remove_controls
from exporter.runtimes.graph_walk import iter_tensors

#: Elements of the largest tensor that is shown with its values.
_MOST_VALUES = 8


def format_model(model: ModelProto) -> str:
    """Return ONNX's text form, without control characters."""
    return remove_controls(printer.to_text(model)) + "\n"


def elide_weights(model: ModelProto) -> None:
    """Replace the values of large tensors in place by their number and range.

    ONNX's text form has no notation for this, so the summary is written as external data.
    """
    for tensor in iter_tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) > _MOST_VALUES:
            summary = _summarize_values(tensor)
            tensor.CopyFrom(
                TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            )
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="left out", value=summary)


def _summarize_values(tensor: TensorProto) -> str:
    count = f"{math.prod(tensor.dims)} values"
    try:
        values = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, RuntimeError):
        return count
    if values.dtype.kind not in "fiub":
        return count
    return f"{count} from {values.min():.6g} to {values.max():.6g}"
