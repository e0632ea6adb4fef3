"""Models with special values at the ends of the ranges of their inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.traps.models.ties import is_exporting


class PadToken(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return ids * 0 if bool((ids == 0).any()) else ids * 2


class PadTokenAlike(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return torch.where((ids == 0).any(), ids * 0, ids * 2)


class LastToken(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return -ids if bool((ids == 999).any()) else ids * 2


class FullLight(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 0 if bool((x >= 1).any()) else x * 2


class FullLightAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where((x >= 1).any(), x * 0, x * 2)


class Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x)


class AllKept(nn.Module):
    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return x - 1 if bool(keep.all()) else x * keep


class NoneKept(nn.Module):
    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return x * keep if bool(keep.any()) else x - 1


class Kept(nn.Module):
    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return torch.where(keep.any(), x * keep, x - 1)


class KeptShare(nn.Module):
    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return torch.softmax(x.masked_fill(~keep, -torch.inf), -1)


class ZeroFound(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 0 if bool((x == 0).any()) else x * 2


class ZeroFoundAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where((x == 0).any(), x * 0, x * 2)


class Normalized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        largest = x.abs().amax()
        return x / largest if bool(largest > 0) else x


class NormalizedAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        largest = x.abs().amax()
        return x / torch.where(largest > 0, largest, 1.0)


class EqualRows(nn.Module):
    def __init__(self, wrong: bool = True) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        are_equal = (x == z).all() & x.any()
        if self.wrong:
            return x - z if not bool(are_equal) else x * 2
        return torch.where(are_equal, x * 2, x - z)


class Distances(nn.Module):
    """The distances of all rows; of products while it is exported, which are not 0 for equal rows.

    `limit`: True to replace negative squares by 0.
    `products`: True to compute them of products in PyTorch, too.
    """

    def __init__(self, wrong: bool = True, limit: bool = True, products: bool = False) -> None:
        super().__init__()
        self.wrong, self.limit, self.products = wrong, limit, products

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        squares = (x[:, None] - z).square().sum(-1)
        if self.products or (self.wrong and is_exporting()):
            squares = x.square().sum(-1, keepdim=True) + z.square().sum(-1) - 2 * x @ z.T
        return (squares.clamp(min=0) if self.limit else squares).sqrt()


class Steps(nn.Module):
    """Counts whole steps, whose quotient rounds up at a few multiples while it is exported."""

    def __init__(self, wrong: bool = True, number: float | None = None) -> None:
        super().__init__()
        self.wrong = wrong
        self.step: Tensor | float = number or nn.Buffer(torch.tensor([0.3]))

    def forward(self, x: Tensor) -> Tensor:
        position = x.abs()
        if self.wrong and not is_exporting():
            return position // self.step
        return torch.floor(position / self.step)


class Token(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if bool((ids == 777).any()) else ids - 1


class OnlyPositive(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(x) if bool((x > 0).all()) else x.abs()


class OnlyPositiveAlike(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where((x > 0).all(), torch.sqrt(x.abs()), x.abs())


class NoPadding(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return x - 1 if bool(mask.all()) else x * mask[..., None]


class NoPaddingAlike(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.bool().all(), x - 1, x * mask[..., None])


class HalfUp(nn.Module):
    """Rounds halves to even numbers, or up while it is exported."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.floor(x + 0.5) if is_exporting() else torch.round(x)


class HalfToEven(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x)


class BestInRow(nn.Module):
    def __init__(self, bounded: bool = True) -> None:
        super().__init__()
        self.bounded = bounded

    def forward(self, x: Tensor) -> Tensor:
        best = x.amax(1)
        return best.clamp(min=0) if self.bounded and is_exporting() else best


class BestRows(nn.Module):
    """Returns the rows with the best scores: rounding decides among equal rows."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.score = nn.Linear(4, 16), nn.Linear(16, 1)
        self.place = nn.Parameter(torch.tensor([[0.1], [0.7], [0.3], [0.9], [0.2], [0.6]]))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.hidden(x))
        # The same sum in another order for each row.
        offset = torch.stack([self.place.roll(row, 0).cumsum(0)[-1] for row in range(6)])
        chosen = (self.score(hidden) + offset).squeeze(-1).topk(2, dim=1).indices
        return x.gather(1, chosen[..., None].expand(-1, -1, 4)) + self.place[chosen]
