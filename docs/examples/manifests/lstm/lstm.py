"""An LSTM that continues a sequence: its states are inputs and outputs."""

from __future__ import annotations

from torch import Tensor, nn


class Continued(nn.Module):
    """Two layers of nn.LSTM and a linear layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, width, num_layers=2)
        self.head = nn.Linear(width, 8)

    def forward(
        self, sequence: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the prediction for each step, and the states after the last one."""
        output, state = self.lstm(sequence, state)
        return self.head(output), state
