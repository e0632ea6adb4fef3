"""Models with operators that ONNX lacks, for the translations in manifests."""

from __future__ import annotations

from typing import Any

import onnx
import onnxscript
import torch
from onnxscript import opset15, opset18
from onnxscript.values import Op, Opset
from torch import Tensor, nn
from torch.onnx import symbolic_helper


@torch.library.custom_op("custom_ops::foo", mutates_args=())
def foo(x: Tensor, alpha: float) -> Tensor:
    """`alpha x + 1`."""
    return x * alpha + 1


@foo.register_fake
def _(x: Tensor, alpha: float) -> Tensor:
    return torch.empty_like(x)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)


class Foo(Mixed):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(foo(self.mix(x), 2.0))


@symbolic_helper.parse_args("v", "f")
def symbolic_foo(g: Any, x: Any, alpha: float) -> Any:
    return g.op("custom_domain::Foo", x, alpha_f=alpha).setType(x.type())


@symbolic_helper.parse_args("v", "f")
def symbolic_of_onnx(g: Any, x: Any, alpha: float) -> Any:
    scaled = g.op("Mul", x, g.op("Constant", value_t=torch.tensor(alpha)))
    return g.op("Add", scaled, g.op("Constant", value_t=torch.tensor(1.0)))


@symbolic_helper.parse_args("v", "f")
def symbolic_wrong(g: Any, x: Any, alpha: float) -> Any:
    return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(alpha)))


def broken(g: Any, *_: Any) -> Any:
    raise RuntimeError("broken on purpose")


def _schema(name: str) -> onnx.defs.OpSchema:
    value = onnx.defs.OpSchema.FormalParameter
    return onnx.defs.OpSchema(
        name,
        "custom_domain",
        1,
        inputs=[value("x", "T")],
        outputs=[value("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[onnx.defs.OpSchema.Attribute("alpha", onnx.defs.OpSchema.AttrType.FLOAT)],
    )


FOO_DOMAIN = "custom_domain"
FOO = Op(Opset(FOO_DOMAIN, 1), "Foo", _schema("Foo"))


def onnx_foo(x: Any, alpha: float) -> Any:
    return FOO(x, alpha=alpha)


def onnx_foo_of_onnx(x: Any, alpha: float) -> Any:
    return opset18.Add(opset18.Mul(x, alpha), 1.0)


def onnx_foo_wrong(x: Any, alpha: float) -> Any:
    return opset18.Mul(x, alpha)


class Selu(Mixed):
    """An operator of PyTorch with an attribute next to one without."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.selu(self.mix(x)) + nn.functional.leaky_relu(x, 0.3)


@onnxscript.script(Opset("own", 1))
def selu(x):
    alpha = opset15.Constant(value_float=1.6732632423543772)
    gamma = opset15.Constant(value_float=1.0507009873554805)
    zero = opset15.Constant(value_float=0.0)
    below = opset15.Mul(alpha, opset15.Sub(opset15.Exp(x), opset15.Constant(value_float=1.0)))
    return opset15.Mul(gamma, opset15.Where(opset15.Greater(x, zero), x, below))


@onnxscript.script(Opset("own", 1))
def leaky_relu(x, slope: float):
    return opset15.LeakyRelu(x, alpha=slope)


class Cumulative(Mixed):
    """An operator without a translation in dynamo, for positive numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumprod(torch.sigmoid(self.mix(x)), 1)


def onnx_cumprod(x: Any, dim: int, dtype: int = -1) -> Any:
    return opset18.Exp(opset18.CumSum(opset18.Log(x), dim))


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("custom_domain::Halve", x).setType(x.type())


class Halved(Mixed):
    def forward(self, x: Tensor) -> Tensor:
        return _Halved.apply(self.mix(x))


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.mul(2)


class Doubled(Mixed):
    """An `autograd.Function` without a translation."""

    def forward(self, x: Tensor) -> Tensor:
        return _Doubled.apply(self.mix(x))


def symbolic_python(g: Any, x: Any, name: str = "", **_: Any) -> Any:
    """Translate every Python function that is not inlined."""
    return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(2.0)))


class Symbolic(Mixed):
    """Names the operator of the file in its own code."""

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.mix(x)
        if torch.onnx.is_in_onnx_export():
            mixed = torch.onnx.ops.symbolic(
                "custom_domain::Foo",
                (mixed,),
                {"alpha": 3.0},
                dtype=mixed.dtype,
                shape=mixed.shape,
                version=1,
            )
        else:
            mixed = mixed * 3 + 1
        return torch.tanh(mixed)
