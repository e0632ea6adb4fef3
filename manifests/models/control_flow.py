"""Code that tracing cannot capture: loops, branches, lists, and a write in place."""

import torch
from torch import Tensor, nn


class LoopSum(nn.Module):
    """A loop over the value of an input; it adds loop_range, loop_range - 1, ..., 1.

    After the example of the torch.onnx documentation, "Tracing vs Scripting": a trace keeps
    the iterations of its example, a script keeps the loop.

    Shapes: x `[rows, columns]` and loop_range `[]`, integers -> `[rows, columns]`.
    """

    def forward(self, x: Tensor, loop_range: Tensor) -> Tensor:
        """Iterate `loop_range` times."""
        for step in range(int(loop_range)):
            x = x + (loop_range - step)
        return x


class IndexedAssignment(nn.Module):
    """Overwrite the columns `index` of `data`.

    Shapes: data `[batch, 4, 5]`, index `[3]` of distinct integers in 0..4, new_data
    `[batch, 4, 3]` -> `[batch, 4, 5]`.
    """

    def forward(self, data: Tensor, index: Tensor, new_data: Tensor) -> Tensor:
        """Write into a copy, and return it."""
        written = data.clone()  # do not change the caller's tensor
        written[:, :, index] = new_data
        return written


class EllipsisAssignment(IndexedAssignment):
    """The same with an ellipsis instead of colons, which TorchScript treats differently."""

    def forward(self, data: Tensor, index: Tensor, new_data: Tensor) -> Tensor:
        """Write into a copy, and return it."""
        written = data.clone()
        written[..., index] = new_data
        return written


class Gate(nn.Module):
    """Scale inputs with a positive sum and shift the others: a branch with `torch.cond`.

    Shapes: x `[batch, 4]` -> `[batch, 4]`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Run the branch that the sum selects, then the layer."""
        gated: Tensor = torch.cond(x.sum() > 0, _scaled, _shifted, (x,))
        return gated + torch.tanh(self.linear(x))


def _scaled(x: Tensor) -> Tensor:
    return x * 2


def _shifted(x: Tensor) -> Tensor:
    return x - 1


@torch.jit.script
def relax(x: Tensor, target: Tensor, steps: Tensor) -> Tensor:
    """Move halfway to `target`, `steps` times.

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
        """Refine the output of the first layer, then apply the last."""
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
