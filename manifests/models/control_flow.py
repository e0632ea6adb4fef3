"""Code that tracing cannot see through: loops, branches, lists, and a write in place."""

import torch
from torch import Tensor, nn


class LoopSum(nn.Module):
    """A loop that turns as often as an input says, adding loop_range, loop_range - 1, ..., 1.

    After the example of the torch.onnx documentation, "Tracing vs Scripting": a trace keeps the
    turns of the value it saw, a script keeps the loop.

    Shapes: x `[rows, columns]` and loop_range `[]`, integers -> `[rows, columns]`.
    """

    def forward(self, x: Tensor, loop_range: Tensor) -> Tensor:
        """Turn `loop_range` times."""
        for step in range(int(loop_range)):
            x = x + (loop_range - step)
        return x


class IndexedAssignment(nn.Module):
    """Overwrites the columns of `data` that `index` names.

    Shapes: data `[batch, 4, 5]`, index `[3]` of distinct integers in 0..4, new_data
    `[batch, 4, 3]` -> `[batch, 4, 5]`.
    """

    def forward(self, data: Tensor, index: Tensor, new_data: Tensor) -> Tensor:
        """Write into a copy, and return it."""
        written = data.clone()  # the caller's own tensor stays as it was
        written[:, :, index] = new_data
        return written


class EllipsisAssignment(IndexedAssignment):
    """The same, with an ellipsis where the colons were: the same to Python, not to TorchScript."""

    def forward(self, data: Tensor, index: Tensor, new_data: Tensor) -> Tensor:
        """Write into a copy, and return it."""
        written = data.clone()
        written[..., index] = new_data
        return written


class Gate(nn.Module):
    """Scales what is positive as a whole, and shifts what is not: a branch by `torch.cond`.

    Shapes: x `[batch, 4]` -> `[batch, 4]`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Take the branch that the sum chooses, then the layer."""
        gated: Tensor = torch.cond(x.sum() > 0, _scaled, _shifted, (x,))
        return gated + torch.tanh(self.linear(x))


def _scaled(x: Tensor) -> Tensor:
    return x * 2


def _shifted(x: Tensor) -> Tensor:
    return x - 1


@torch.jit.script
def relax(x: Tensor, target: Tensor, steps: Tensor) -> Tensor:
    """Goes half of the way to `target`, `steps` times.

    Shapes: x and target `[batch, 4]`, steps `[]` of integers -> `[batch, 4]`.
    """
    for _ in range(int(steps)):
        x = x + (target - x) * 0.5
    return x


class Refined(nn.Module):
    """Traced layers around a scripted loop.

    Shapes: x `[batch, 4]`, steps `[]` of integers -> `[batch, 4]`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        """Refine what the first layer gives, then apply the last."""
        refined: Tensor = self.last(relax(self.first(x), x, steps))
        return refined


class Collected(nn.Module):
    """A list with one more part for each step, joined at its end.

    After the example of the torch.onnx documentation that builds a list in a loop.

    Shapes: x `[batch, 4]`, steps `[]` of integers -> `[batch * (steps + 1), 4]`.
    """

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        """Append a part for each step."""
        parts = [x]
        for step in range(int(steps)):
            parts.append(x * 0.5 + step)  # noqa: PERF401 - TorchScript keeps this loop
        return torch.cat(parts, dim=0)
