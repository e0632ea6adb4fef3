"""Whether a model keeps something of its first call in a plain attribute.

In: a model before and after a call. Out: whether a plain attribute of it is another one. Buffers
are not looked at: they are put back before each run, and `determinism` sees what they change.

Most of what is kept is a table that is the same whatever came first. So this is only the question:
the answer is what a model that was built anew gives to another input (`reference.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from exporter.worker.model.source_loader import Model
from exporter.worker.torch_private.tensor_internals import count_writes


class AttributeSnapshot:
    """The plain attributes of a model and of its modules, as they are now."""

    def __init__(self, model: Model) -> None:
        self._model = model
        # The values themselves too, so that no other object gets their identity meanwhile.
        self._values = [value for _, value in _plain(model)]
        self._kept = _marks(model)

    def have_changed(self) -> bool:
        """Whether one was set, removed or written into since."""
        return _marks(self._model) != self._kept


def _plain(model: Model) -> Iterator[tuple[str, Any]]:
    """Path and value of each attribute that is no parameter, buffer or module."""
    if not isinstance(model, torch.nn.Module):
        return
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            # What begins so is torch's own: parameters, buffers, modules, hooks.
            if not name.startswith("_"):
                yield f"{path}.{name}", value


def _marks(model: Model) -> dict[str, tuple[Any, ...]]:
    return {path: _mark(value) for path, value in _plain(model)}


def _mark(value: Any) -> tuple[Any, ...]:
    """What is another one where the value is, or where something was written into it."""
    if isinstance(value, torch.Tensor):
        return (id(value), count_writes(value))
    if isinstance(value, dict):
        return (id(value), *(id(item) for pair in value.items() for item in pair))
    if isinstance(value, list | set | tuple):
        return (id(value), *(id(item) for item in value))
    return (id(value),)
