"""Models of the section on names and axes."""

from torch import Tensor, nn


class Affine(nn.Module):
    """One layer: `[batch, 4]` to `[batch, 4]`."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y
