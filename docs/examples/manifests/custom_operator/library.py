"""A network with the operator of `snake.cpp`; `compile_library.py` compiles it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

LIBRARY = Path(__file__).parent / "build" / "tutorial_snake.so"
if not LIBRARY.exists():
    raise FileNotFoundError(f"{LIBRARY}: not compiled; run compile_library.py beside snake.cpp")
torch.ops.load_library(LIBRARY)


class Network(nn.Module):
    """Two linear layers with the activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return three values for each row."""
        result: Tensor = self.last(torch.ops.tutorial_cpp.snake(self.first(x), 2.0))
        return result
