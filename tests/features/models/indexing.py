"""Reads and writes by an index, in every form that the documentation of torch.onnx lists.

The shape of the data is `[4, 5, 6]`. The written values are computed from the data.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

#: By the words of the table.
READS: dict[str, Callable[[Tensor], Tensor]] = {
    "numbers": lambda data: data[0, 1],
    "a negative number": lambda data: data[-1],
    "a slice": lambda data: data[:3],
    "a slice with a step": lambda data: data[:, ::2],
    "None and an ellipsis": lambda data: data[None, ..., 0],
    "a tensor of rank 1": lambda data: data[torch.tensor([2, 3])],
    "a tensor of rank 2": lambda data: data[torch.tensor([[1, 2], [2, 3]])],
    "two tensors": lambda data: data[torch.tensor([2, 3]), torch.tensor([1, 2])],
    "tensors of rank 2 and 1": lambda data: data[
        torch.tensor([[1, 2], [2, 3]]), torch.tensor([2, 3])
    ],
    "two tensors that are not consecutive": lambda data: data[
        torch.tensor([2, 3]), :, torch.tensor([1, 2])
    ],
    "a negative tensor": lambda data: data[torch.tensor([[1, 2], [2, -3]]), torch.tensor([-2, 3])],
    "a mask": lambda data: data[torch.tensor([True, False, True, True])],
}


class Read(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.read = READS[form]

    def forward(self, data: Tensor) -> Tensor:
        return self.read(data) * 2


class ReadAt(nn.Module):
    def forward(self, data: Tensor, index: Tensor) -> Tensor:
        return data[index]


def _numbers(data: Tensor) -> None:
    data[0, 1] = data[1, 1] * 2


def _slice(data: Tensor) -> None:
    data[:3] = data[1:] * 2


def _column(data: Tensor) -> None:
    data[:, 2] = data[:, 1] * 2


def _one(data: Tensor) -> None:
    data[torch.tensor([2, 0])] = data[:2] * 2


def _rank_two(data: Tensor) -> None:
    data[torch.tensor([[1, 2], [0, 3]])] = torch.stack([data[:2], data[2:]]) * 2


def _two(data: Tensor) -> None:
    data[torch.tensor([2, 3]), torch.tensor([2, 3])] = data[0, :2] * 2


def _rank_two_and_one(data: Tensor) -> None:
    data[torch.tensor([[1, 2], [0, 3]]), torch.tensor([2, 3])] = data[:2, :2] * 2


def _not_consecutive(data: Tensor) -> None:
    data[torch.tensor([2, 3]), :, torch.tensor([1, 2])] = data[:2, :, 0] * 2


def _negative(data: Tensor) -> None:
    data[torch.tensor([1, -2]), torch.tensor([-2, 3])] = data[0, :2] * 2


def _broadcast(data: Tensor) -> None:
    data[torch.tensor([[0, 2], [1, 3]]), 1:3] = data[3, 4] * 2


def _mask(data: Tensor) -> None:
    data[data > 0.5] = 0.25


#: By the words of the table.
WRITES: dict[str, Callable[[Tensor], None]] = {
    "numbers": _numbers,
    "a slice": _slice,
    "a column": _column,
    "a tensor of rank 1": _one,
    "a tensor of rank 2": _rank_two,
    "two tensors": _two,
    "tensors of rank 2 and 1": _rank_two_and_one,
    "two tensors that are not consecutive": _not_consecutive,
    "negative tensors": _negative,
    "a value that is broadcast": _broadcast,
    "a mask": _mask,
}


class Write(nn.Module):
    """Copies `data` and writes to it in one of the forms."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.write = WRITES[form]

    def forward(self, data: Tensor) -> Tensor:
        data = data.clone()
        self.write(data)
        return data
