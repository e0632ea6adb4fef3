"""A run that records the values from which operators select indices, such as `topk`.

PyTorch promises no order of equal values for `topk` and `sort`. ONNX selects the lower index first.
Output: `SelectionRecorder`, whose run selects as ONNX does, and an `IndexSelection` for each output
that consists of indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from exporter.worker.reference.dispatch_modes import create_mode
from exporter.worker.torch_private.internals import read_schema

#: Elements of the largest tensor whose selections are recorded: 32 MB of float64.
_LARGEST = 1 << 22
#: Operators that move or copy elements; the others start from a new tensor.
_COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::contiguous", "aten::_unsafe_view"})
_CASTS = frozenset({"aten::_to_copy"})
#: What identifies a tensor: PyTorch may return views as other objects.
_Key = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class IndexSelection:
    """Indices with the values that they select from."""

    keys: torch.Tensor
    """The values in rows: an index selects one of its row."""
    rows: torch.Tensor
    """The row of each index, in the shape of the indices."""
    indices: torch.Tensor
    is_first_promised: bool
    """Whether PyTorch promises the first of equal values."""


@dataclass(slots=True)
class SelectionRecorder:
    """The selections of one run of a model."""

    keys: list[torch.Tensor] = field(default_factory=list)
    """The values of each selecting operator, in the order of the run."""
    _selections: dict[_Key, tuple[torch.Tensor, int, IndexSelection]] = field(default_factory=dict)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the selections inside, with the lower index first among equal values."""
        with create_mode(self._run):
            yield

    def find(self, output: torch.Tensor) -> tuple[int, IndexSelection] | None:
        """Return the number of the operator and the selection of an output, if it has one."""
        recorded = self._selections.get(_identify(output))
        # A write in place changes the values, and not the tensor.
        if recorded is None or not torch.equal(recorded[2].indices, output):
            return None
        return recorded[1], recorded[2]

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        schema = read_schema(func)
        name = str(schema.name)
        overload = f"{name}.{schema.overload_name}" if schema.overload_name else name
        select = SELECTING_OPERATORS.get(overload)
        if select is not None:
            values, dim, is_first_promised, result = select(func, *args, **kwargs)
            self._record(result, values, dim, is_first_promised)
            return result
        result = func(*args, **kwargs)
        is_view = any(item.alias_info and not item.alias_info.is_write for item in schema.returns)
        if args and (is_view or name in _COPIES) and isinstance(args[0], torch.Tensor):
            self._follow(func, name, args, kwargs, result)
        return result

    def _record(self, result: Any, values: torch.Tensor, dim: int | None, is_first: bool) -> None:
        indices = result if isinstance(result, torch.Tensor) else result[1]
        if values.numel() > _LARGEST or indices.numel() > _LARGEST or not indices.numel():
            return
        if dim is None or not values.ndim:
            keys, rows = values.reshape(1, -1), torch.zeros_like(indices)
        else:
            moved = values.movedim(dim, -1)
            keys = moved.reshape(-1, moved.shape[-1])
            rows = torch.arange(len(keys), device=values.device).reshape(moved.shape[:-1])
            if indices.ndim == values.ndim:
                rows = rows.unsqueeze(dim).expand_as(indices)
        rows = _copy_like(rows, indices)
        self.keys.append(keys.clone())
        self._store(
            indices, len(self.keys) - 1, IndexSelection(keys, rows, indices.clone(), is_first)
        )

    def _follow(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Record moved or copied indices."""
        choice = self.find(args[0])
        if choice is None:
            return
        number, source = choice
        if name in _CASTS:
            moved = _copy_like(source.rows, result)
        else:
            moved = func(source.rows, *args[1:], **kwargs)
        pairs = zip(result, moved, strict=True) if isinstance(result, list | tuple) else None
        for tensor, rows in pairs or ((result, moved),):
            selection = IndexSelection(source.keys, rows, tensor.clone(), source.is_first_promised)
            self._store(tensor, number, selection)

    def _store(self, indices: torch.Tensor, number: int, selection: IndexSelection) -> None:
        # The tensor stays alive, so no other one gets its memory.
        self._selections[_identify(indices)] = (indices, number, selection)


def _copy_like(rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return the rows with the strides of the indices, so that the same views are possible."""
    return torch.empty_like(indices, dtype=torch.int64).copy_(rows)


def _identify(tensor: torch.Tensor) -> _Key:
    storage = tensor.untyped_storage().data_ptr()
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return storage, int(tensor.storage_offset()), shape, strides, tensor.dtype


#: The values, the axis, whether the first of equal values is promised, and the result.
_Choice = tuple[torch.Tensor, "int | None", bool, Any]


def _select_best(
    func: Any, values: torch.Tensor, dim: Any = None, keepdim: bool = False
) -> _Choice:
    return values, dim, True, func(values, dim, keepdim)


def _sort(_func: Any, values: torch.Tensor, dim: int = -1, descending: bool = False) -> _Choice:
    result = torch.sort(values, dim=dim, descending=descending, stable=True)
    return values, dim, False, tuple(result)


def _sort_stably(
    _func: Any,
    values: torch.Tensor,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> _Choice:
    result = torch.sort(values, dim=dim, descending=descending, stable=True)
    return values, dim, bool(stable), tuple(result)


def _select_top(func: Any, values: torch.Tensor, k: int, dim: int = -1, *order: bool) -> _Choice:
    if not values.ndim:
        return values, None, False, func(values, k, dim, *order)
    result = torch.sort(values, dim=dim, descending=order[0] if order else True, stable=True)
    return values, dim, False, tuple(part.narrow(dim, 0, k).contiguous() for part in result)


SELECTING_OPERATORS: dict[str, Callable[..., _Choice]] = {
    "aten::argmax": _select_best,
    "aten::argmin": _select_best,
    "aten::max.dim": _select_best,
    "aten::min.dim": _select_best,
    "aten::sort": _sort,
    "aten::sort.stable": _sort_stably,
    "aten::topk": _select_top,
}
