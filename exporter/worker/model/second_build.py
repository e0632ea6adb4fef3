"""The comparison of two builds of a model, by digests of their weights.

A model that is built from the time, from unseeded generators or from memory that nobody set has
other weights in each export, so no record describes the next file.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from exporter.checks.runtime_checks import BUILD_PREFIX
from exporter.core.text import join_names
from exporter.manifest import ModelSpec
from exporter.runtimes.session import Array
from exporter.worker.model.source_loader import Model, import_source, load_model
from exporter.worker.process.fork_call import can_fork, compute_in_fork

#: Names in one message.
_MAX_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model, with the facts of its builds."""

    model: Model
    change: str = ""
    """The difference of another build from it; empty if there is none."""
    has_initial_weights: bool = False
    """Whether its weights were drawn from the seed, and none were loaded."""


def load_model_twice(spec: ModelSpec, root: Path) -> LoadedModel:
    """Return the model, compared with another build in a fork."""
    if spec.is_saved_program or spec.is_saved_script:
        return LoadedModel(model=load_model(spec, root))
    other = None
    with _count_loads() as loads:
        import_source(spec, root)  # once for both builds
        is_drawn = _has_drawn(spec.seed)
        if can_fork():
            other = compute_in_fork(lambda: digest_weights(load_model(spec, root)))
        model = load_model(spec, root)
        is_drawn = is_drawn or _has_drawn(spec.seed)
    return LoadedModel(
        model=model,
        change="" if other is None else _describe_builds(digest_weights(model), other),
        has_initial_weights=is_drawn and not loads and _has_parameters(model),
    )


def _has_drawn(seed: int) -> bool:
    """Return whether torch drew numbers since its generator was seeded."""
    unused = torch.Generator().manual_seed(seed).get_state()
    return not torch.equal(torch.get_rng_state(), unused)


def _has_parameters(model: Model) -> bool:
    return isinstance(model, torch.nn.Module) and any(True for _ in model.parameters())


@contextmanager
def _count_loads() -> Iterator[list[str]]:
    """Yield a list that receives the class of each module that loads a state."""
    loads: list[str] = []
    load_state_dict: Any = torch.nn.Module.load_state_dict

    @functools.wraps(load_state_dict)
    def count(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        loads.append(type(module).__name__)
        return load_state_dict(module, *args, **kwargs)

    setattr(torch.nn.Module, load_state_dict.__name__, count)
    try:
        yield loads
    finally:
        setattr(torch.nn.Module, load_state_dict.__name__, load_state_dict)


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
