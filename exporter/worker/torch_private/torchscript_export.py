"""Split off; to be described."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from exporter.worker.torch_private.detached_weights import DetachedWeights, is_plain_tensor
from exporter.worker.torch_private.versions import is_known_torch

#: The place of `keep_initializers_as_inputs` in the arguments of `_export_onnx` after the weights.
_LISTS_WEIGHTS = 5


@contextmanager
def detach_weights() -> Iterator[DetachedWeights]:
    """Keeps the weights out of the protobuf that TorchScript's exporter makes, and hands them over.

    Nothing is kept out where this torch is not known, or where a weight is no plain tensor.
    """
    aside = DetachedWeights()
    if not is_known_torch():
        yield aside
        return
    graph_class: Any = torch.Graph
    export = graph_class._export_onnx

    def exporting(graph: torch.Graph, weights: dict[str, torch.Tensor], *rest: Any) -> Any:
        if not all(is_plain_tensor(weight) for weight in weights.values()):
            return export(graph, weights, *rest)
        aside.weights.update(weights)
        aside.are_inputs = bool(rest[_LISTS_WEIGHTS])
        return export(graph, {}, *rest)

    graph_class._export_onnx = exporting
    try:
        yield aside
    finally:
        graph_class._export_onnx = export
