"""Models that an exporter gets wrong, each in a way that is known."""

from __future__ import annotations

import os
import time
import traceback

import torch
from torch import Tensor, nn


class Scaled(nn.Module):
    """The second of three modules keeps a number of the example, at `.item()`."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.middle = _ByItsLargest()
        self.after = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.middle(self.before(x)))


class _ByItsLargest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.detach().abs().max()) + 0.5


class Fused(nn.Module):
    """TorchScript folds the BatchNorm into the Conv; the wrong number comes after it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)
        self.bn = nn.BatchNorm2d(3)
        self.middle = _ByItsLargest()

    def forward(self, x: Tensor) -> Tensor:
        return self.middle(self.bn(self.conv(x)))


class Chain(nn.Module):
    """Sound; files of it are damaged by tests."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Lacking(nn.Module):
    """Two operators that neither exporter knows, one of them twice."""

    def forward(self, x: Tensor) -> Tensor:
        q = torch.special.bessel_j0(x)
        q = q + torch.special.bessel_j0(x + 1)
        return q + torch.special.airy_ai(x)


class Short(nn.Module):
    """Another computation from 512 rows on."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.shape[0] < 512 else x - 1


class Written(nn.Module):
    """Two indexed writes: ScatterND came with opset 11."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, [0, 2]] = 1.0
        x[[0, 1]] = 2.0
        return x


class DoublesBySize(nn.Module):
    """Depends on a size in a way that torch.export rejects and that changes no result."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 3 else x + x


class TriplesBySize(nn.Module):
    """Depends on a size in a way that changes the result."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 3 else x * 3


class KeepsLargest(nn.Module):
    """Changes its own weight in each call with a larger value."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = nn.Parameter(torch.full((1,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        self.largest.data = torch.maximum(self.largest.data, x.detach().abs().max())
        return (x / self.largest * 1000).to(torch.int64)


class Rotated(nn.Module):
    """Rotates positions; the exporter writes tables with a batch of 1, which ONNX excludes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", 1.0 / 100 ** (torch.arange(4) / 4))

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[2])[None].float()
        angles = self.frequencies[None, :, None].expand(1, -1, 1) @ positions[:, None, :]
        angles = angles.transpose(1, 2)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        turned = torch.cat((-x[..., 4:], x[..., :4]), -1)
        return x * cos + turned * sin


class Attends(nn.Module):
    """Sound; ONNX has the operator Attention since opset 23."""

    def forward(self, x: Tensor) -> Tensor:
        heads = x.reshape(-1, 1, 2, 2)
        attended = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return attended.reshape(-1, 4)


def build_quantized() -> nn.Module:
    """Return a quantized layer before a number of the example."""
    model = nn.Sequential(
        torch.ao.quantization.QuantStub(),
        nn.Linear(4, 4),
        torch.ao.quantization.DeQuantStub(),
        _ByItsLargest(),
    ).eval()
    model.qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
    torch.ao.quantization.prepare(model, inplace=True)
    model(torch.randn(32, 4))
    return torch.ao.quantization.convert(model)


class EndsInDiagnosis(nn.Module):
    """A trace of it is wrong, and its source ends a diagnosis, which builds it again."""

    def __init__(self, end: str) -> None:
        super().__init__()
        if "describe_stored_state" in (frame.name for frame in traceback.extract_stack()):
            if end == "abort":
                os.abort()
            while end == "hang":
                time.sleep(1)

    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.detach().abs().max())
