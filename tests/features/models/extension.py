"""A model with an operator of a C++ extension, which its row compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from onnxscript import opset18
from torch import Tensor, nn
from torch.onnx import symbolic_helper

_LIBRARY = Path(__file__).with_name("libextension.so")
if not hasattr(torch.ops.extension, "scaled_add"):
    torch.ops.load_library(str(_LIBRARY))

    @torch.library.register_fake("extension::scaled_add")
    def _(x: Tensor, alpha: float, offset: int) -> Tensor:
        return torch.empty_like(x)


class Extended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.extension.scaled_add(self.linear(x), 2.5, 3)


@symbolic_helper.parse_args("v", "f", "i")
def symbolic_scaled_add(g: Any, x: Any, alpha: float, offset: int) -> Any:
    scaled = g.op("Mul", x, g.op("Constant", value_t=torch.tensor(alpha)))
    return g.op("Add", scaled, g.op("Constant", value_t=torch.tensor(float(offset))))


def onnx_scaled_add(x: Any, alpha: float, offset: int) -> Any:
    return opset18.Add(
        opset18.Mul(x, opset18.Constant(value_float=alpha)),
        opset18.Constant(value_float=float(offset)),
    )
