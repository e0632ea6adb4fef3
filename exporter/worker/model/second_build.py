"""The comparison of two builds of a model, by digests of their weights.

A model that is built from the time, from unseeded generators or from memory that nobody set has
other weights in each export, so no record describes the next file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

from exporter.checks.numerical.determinism import BUILD_PREFIX
from exporter.core.text_format import join_names
from exporter.manifest import ModelSpec
from exporter.runtimes.values import Array
from exporter.worker.model.source_loader import Model, import_source, load_model
from exporter.worker.process.fork_call import can_fork, compute_in_fork

#: Names in one message.
_MAX_NAMES = 3


def load_model_twice(spec: ModelSpec, root: Path) -> tuple[Model, str]:
    """Return the model, and the difference of another build from it, or "".

    Raises:
        Failure: Stage `source`, as `load_model`.
    """
    if spec.is_saved_program or spec.is_saved_script or not can_fork():
        return load_model(spec, root), ""
    import_source(spec, root)  # once for both builds
    other = compute_in_fork(lambda: digest_weights(load_model(spec, root)))
    model = load_model(spec, root)
    return model, "" if other is None else _describe_builds(digest_weights(model), other)


def digest_weights(model: Model) -> dict[str, str]:
    """Return a digest of each parameter and buffer, by its name in a message."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {
        **{f"the parameter '{name}'": _digest(item) for name, item in model.named_parameters()},
        **{f"the buffer '{name}'": _digest(item) for name, item in model.named_buffers()},
    }


def _describe_builds(first: Mapping[str, str], second: Mapping[str, str]) -> str:
    names = dict.fromkeys((*first, *second))
    changed = [name for name in names if first.get(name) != second.get(name)]
    return f"{BUILD_PREFIX} {join_names(changed, _MAX_NAMES)}" if changed else ""


def _digest(weight: torch.Tensor) -> str:
    if weight.layout is not torch.strided or weight.is_quantized:
        return ""
    data: Array = weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.blake2b(data.data, digest_size=16).hexdigest() + str(tuple(weight.shape))
