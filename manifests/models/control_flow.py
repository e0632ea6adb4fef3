"""Code that tracing cannot see through: a loop over an input, and a write in place."""

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
