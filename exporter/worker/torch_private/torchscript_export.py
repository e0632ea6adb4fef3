"""The function of torch that writes a TorchScript graph, without the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from exporter.worker.torch_private.detached_weights import DetachedWeights, is_plain_tensor
from exporter.worker.torch_private.guards import is_enabled, replace_attribute

#: The index of `keep_initializers_as_inputs` in the arguments of `_export_onnx` after the weights.
_LISTS_WEIGHTS = 5


@contextmanager
def detach_weights() -> Iterator[DetachedWeights]:
    """Keep the weights out of the protobuf message of a TorchScript export.

    Yields:
        The weights; none if the group is off or if a weight is not a plain tensor.
    """
    detached = DetachedWeights()
    if not is_enabled("weights"):
        yield detached
        return
    graph_class: Any = torch.Graph
    export = graph_class._export_onnx

    def export_graph(graph: torch.Graph, weights: dict[str, torch.Tensor], *rest: Any) -> Any:
        if not all(is_plain_tensor(weight) for weight in weights.values()):
            return export(graph, weights, *rest)
        detached.weights.update(weights)
        detached.are_inputs = bool(rest[_LISTS_WEIGHTS])
        return export(graph, {}, *rest)

    with replace_attribute(graph_class, "_export_onnx", export_graph):
        yield detached
