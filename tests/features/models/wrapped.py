"""Models in the forms for which torch.onnx has its own interfaces."""

from typing import Any

import torch
from torch import Tensor, nn


class Exportable(torch.onnx.ExportableModule):
    """A module that describes its call and the names of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def example_arguments(self) -> tuple[tuple[Any], dict[str, Any] | None]:
        """Return the default arguments of an export."""
        return (torch.randn(2, 4),), None


def parallel() -> nn.Module:
    """Return a module for several devices."""
    return nn.DataParallel(nn.Linear(4, 4))


class Lazy(nn.Module):
    """A layer that gets its size from the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.LazyLinear(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def called_once() -> nn.Module:
    model = Lazy()
    model(torch.zeros(1, 4))
    return model


class FakeQuantized(nn.Module):
    """Rounds as a quantized model does, in floats: scale 1/16 and zero point 3, to uint8."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.0625, 3, 0, 255)


class Quantized(nn.Module):
    """An integer layer between a float input and a float output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.ao.nn.quantized.Linear(4, 4)
        weight = torch.quantize_per_tensor(torch.randn(4, 4), 0.05, 0, torch.qint8)
        self.linear.set_weight_bias(weight, torch.randn(4))
        self.linear.scale, self.linear.zero_point = 0.1, 64

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.quantize_per_tensor(x, 0.05, 64, torch.quint8)).dequantize()


class QuantizedClip(nn.Module):
    """Clips integers by an operator that torch.onnx lacks."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.relu6(
            torch.quantize_per_tensor(x * 4, 0.05, 64, torch.quint8)
        ).dequantize()


def quantized_relu6(g: Any, x: Any, inplace: Any = None) -> Any:
    """Return `quantized::relu6` in floats, with the scale of its input."""
    value, scale, zero_point, _ = torch.onnx.symbolic_helper.dequantize_helper(g, x)
    zero, six = (g.op("Constant", value_t=torch.tensor(number)) for number in (0.0, 6.0))
    clipped = g.op("Clip", value, zero, six)
    return torch.onnx.symbolic_helper.quantize_helper(g, clipped, scale, zero_point)


class OneStepOff(Quantized):
    """The export is one unit of the integers larger."""

    steps = 1

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y + self.steps * 0.1 if torch.onnx.is_in_onnx_export() else y


class TwoStepsOff(OneStepOff):
    """The export is two units larger."""

    steps = 2


class DynamicallyQuantized(nn.Module):
    """An integer layer that gets the scale of its input from the values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.ao.nn.quantized.dynamic.Linear(4, 4)
        weight = torch.quantize_per_tensor(torch.randn(4, 4), 0.05, 0, torch.qint8)
        self.linear.set_weight_bias(weight, torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Rotated(nn.Module):
    """Rotary positions by the operator of ONNX: x `[batch, 2, length, 8]`."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(50.0), torch.tensor([1.0, 0.3, 0.1, 0.03]))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return torch.onnx.ops.rotary_embedding(x, self.cos, self.sin, positions)


class Attended(nn.Module):
    """Attention by the operator of ONNX: queries, keys and values `[batch, 2, length, 8]`."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.onnx.ops.attention(query, key, value, is_causal=False)[0]


class Symbolic(nn.Module):
    """The two halves of a tensor; an export uses an ONNX operator with two outputs."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.onnx.is_in_onnx_export():
            shape = (x.shape[0], 2)
            first, second = torch.onnx.ops.symbolic_multi_out(
                "Split",
                (x,),
                {"axis": 1, "num_outputs": 2},
                dtypes=(x.dtype, x.dtype),
                shapes=(shape, shape),
                version=18,
            )
        else:
            first, second = x.chunk(2, dim=1)
        return torch.cat((second, first), dim=1)
