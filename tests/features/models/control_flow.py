"""Loops and branches over values: captured, traced, scripted, and mixed."""

import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan, while_loop


class Loop(nn.Module):
    """Adds n, n - 1, ..., 1: an input sets the number of repetitions."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for step in range(int(n)):
            x = x + (n - step)
        return x


class Branch(nn.Module):
    """Selects a branch by the sum, in Python."""

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x - 1


class Cond(nn.Module):
    """The same branch by `torch.cond`, which keeps both sides."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, _double, _decrement, (x,))


def _double(x: Tensor) -> Tensor:
    return x * 2


def _decrement(x: Tensor) -> Tensor:
    return x - 1


class CondTurned(nn.Module):
    """Exchanges two branches of a value in an export: a mistake."""

    def forward(self, x: Tensor) -> Tensor:
        ways = (_decrement, _double) if torch.compiler.is_exporting() else (_double, _decrement)
        return torch.cond(x.sum() > 0, *ways, (x,))


class CondNested(nn.Module):
    """Three results, by a branch inside a branch."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, _double, _inner, (x,))


def _inner(x: Tensor) -> Tensor:
    return torch.cond(x.min() < -50, _halve, _decrement, (x,))


def _halve(x: Tensor) -> Tensor:
    return x / 2


class WhileLoop(nn.Module):
    """Repeats as often as an input requires, by `while_loop`."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        _, y = while_loop(_goes_on, _step, (n.clone(), x.clone()))
        return y


def _goes_on(n: Tensor, x: Tensor) -> Tensor:
    return n > 0


def _step(n: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return n - 1, x * 0.5 + n


class Scan(nn.Module):
    """A running sum over rows that halves the earlier sum, by `scan`."""

    def forward(self, x: Tensor) -> Tensor:
        _, rows = scan(_forget, x[0] * 0, x)
        return rows


def _forget(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    state = state * 0.5 + row
    return state, state.clone()


class Until(nn.Module):
    """Halves until no value exceeds 1."""

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 1):
            x = x / 2
        return x


class Break(nn.Module):
    """Leaves a loop early, by an input."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        for step in range(100):
            if step >= int(n):
                break
            x = x * 0.5 + step
        return x


@torch.jit.script
def turn(x: Tensor, n: Tensor) -> Tensor:
    """A loop that TorchScript keeps inside a traced module."""
    for step in range(int(n)):
        x = x + (n - step)
    return x


class Mixed(nn.Module):
    """A traced module with a scripted loop in it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return self.linear(turn(x, n))


class Row(nn.Module):
    """A computation for one row."""

    def forward(self, row: Tensor) -> Tensor:
        return row * 2 if bool(row.sum() > 0) else row


def traced_in_script() -> nn.Module:
    """A scripted loop around a traced module: the trace has lost the branch."""
    return torch.jit.script(Rows(torch.jit.trace(Row(), torch.ones(4))))


class Rows(nn.Module):
    def __init__(self, row: nn.Module) -> None:
        super().__init__()
        self.row = row

    def forward(self, x: Tensor) -> Tensor:
        rows: list[Tensor] = []
        for index in range(x.size(0)):
            rows.append(self.row(x[index]))  # noqa: PERF401 - TorchScript keeps this loop
        return torch.stack(rows)


def scripted_in_script() -> nn.Module:
    """The same, completely scripted."""
    return torch.jit.script(Rows(torch.jit.script(Row())))


class Collected(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        parts = [x]
        for step in range(int(n)):
            parts.append(x * step)  # noqa: PERF401 - TorchScript keeps this loop
        return torch.cat(parts, dim=0)


class Unbound(nn.Module):
    """A list of the rows, each processed and stacked: a trace fixes their number."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([row * index for index, row in enumerate(x.unbind(0))])


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x * index for index in range(3)], dim=1)


class Chosen(nn.Module):
    """Computes both sides, and `torch.where` selects for each row."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.sum(dim=1, keepdim=True) > 0, x * 2, x - 1)


class Pairs(nn.Module):
    """A list of tuples, which ONNX sequences cannot contain."""

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        pairs = [(x, x)]
        for _ in range(int(n)):
            pairs.append((x, x * 2))  # noqa: PERF401 - the unsupported form
        return pairs[-1][1]


class DoubledByAddition(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x if torch.onnx.is_in_onnx_export() else x * 2


class NearlyDoubled(nn.Module):
    """Doubles; an export is only nearly right."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 1.999 if torch.onnx.is_in_onnx_export() else x * 2


class DocumentedWhileLoop(nn.Module):
    """The example in the documentation of `while_loop`: condition and body are methods."""

    def goes_on(self, count: Tensor, x: Tensor) -> Tensor:
        return count.sum() > 0

    def step(self, count: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return count - 1, x * 2

    def forward(self, count: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return while_loop(self.goes_on, self.step, (count, x))


class Weighted(nn.Module):
    """Branches and a loop with layers of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, self.first, self.second, (x,))
