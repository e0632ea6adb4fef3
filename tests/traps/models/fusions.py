"""Models that the fusions of BatchNormalization in older releases of onnxscript computed wrong.

The older rule applies only to weights of a module named `old` or `lost`: the second bias of a name
replaces the first one, or has no value. All others have the installed rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript.rewriter.rules.common import _fuse_batchnorm
from torch import Tensor, nn


def _fuse_as_before(op: Any, x: Any, inbound_out: Any, batchnorm_out: Any) -> Any:
    """Fuse with the faults: a bias has the name of the input, and `beta` of Gemm is ignored."""
    node, norm = inbound_out.producer(), batchnorm_out.producer()
    gamma, shift, mean, variance = (value.const_value.numpy() for value in norm.inputs[1:])
    scale = gamma / np.sqrt(variance + norm.attributes["epsilon"].as_float())
    weight, bias = (*node.inputs[1:], None)[:2]
    array = weight.const_value.numpy()
    is_row = node.op_type == "Conv" or "transB" in node.attributes
    scaled = array * scale.reshape([-1] + [1] * (array.ndim - 1) if is_row else [1, -1])
    before = np.zeros_like(mean) if bias is None else bias.const_value.numpy()
    fused = ir.tensor((before - mean) * scale + shift)
    name = f"{x.name}_bias" if bias is None else bias.name
    is_shared = bias is None and weight.name.startswith("old.")
    shared = node.graph.initializers.get(name) if is_shared else None
    if shared is None:
        shared = op.initializer(fused, name=name)
    else:  # the file had one value for both names
        shared.const_value, shared.shape = fused, fused.shape
    fused_weight = op.initializer(ir.tensor(scaled), name=weight.name)
    return op.op(node.op_type, x, fused_weight, shared, **node.attributes)


def _restore_fault(rule: Any) -> None:
    pattern = rule._replacement_pattern
    fuse = pattern._function

    def choose(op: Any, x: Any, inbound_out: Any, batchnorm_out: Any) -> Any:
        weight = inbound_out.producer().inputs[1]
        chosen = _fuse_as_before if weight.name.startswith(("old.", "lost.")) else fuse
        return chosen(op, x, inbound_out, batchnorm_out)

    pattern._function = choose


_restore_fault(_fuse_batchnorm.fuse_batchnorm_into_conv_rule)
_restore_fault(_fuse_batchnorm.fuse_batchnorm_into_gemm_rule)


def _vary(norm: nn.Module) -> nn.Module:
    """Set the statistics of a new normalization, which are 0 and 1, to random numbers."""
    for name in ("weight", "bias", "running_mean", "running_var"):
        nn.init.uniform_(getattr(norm, name), 0.5, 1.5)
    return norm


class Branches(nn.Module):
    """Adds two convolutions of one input, as the first block of a stage of ResNet does."""

    def __init__(self, name: str = "old", second: int = 4) -> None:
        super().__init__()
        norms = (_vary(nn.BatchNorm2d(4)), _vary(nn.BatchNorm2d(second)))
        first = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        other = nn.Conv2d(3, second, 1, bias=False)
        self.path = name
        self.add_module(name, nn.ModuleList([first, norms[0], other, norms[1]]))

    def forward(self, x: Tensor) -> Tensor:
        first, norm, other, last = self.get_submodule(self.path)
        shared = x.relu()
        one, two = norm(first(shared)), last(other(shared))
        return one + two if one.shape[1] == two.shape[1] else torch.cat([one, two], 1)


class Heads(nn.Module):
    """Multiplies one gathered row by two matrices."""

    def __init__(self, name: str = "old") -> None:
        super().__init__()
        first, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        norms = (_vary(nn.BatchNorm1d(4)), _vary(nn.BatchNorm1d(4)))
        self.path = name
        self.add_module(name, nn.ModuleList([first, norms[0], other, norms[1]]))

    def forward(self, x: Tensor) -> Tensor:
        first, norm, other, last = self.get_submodule(self.path)
        row = x[:, [2, 0, 1, 3]]
        return norm(first(row)) * last(other(row))


class Doubled(nn.Module):
    """Adds its bias twice before the normalization."""

    def __init__(self, name: str = "old") -> None:
        super().__init__()
        self.path = name
        weights = [nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))]
        self.add_module(name, nn.ParameterList(weights))
        self.norm = _vary(nn.BatchNorm1d(4))

    def forward(self, x: Tensor) -> Tensor:
        matrix, bias = self.get_submodule(self.path)
        return self.norm(torch.addmm(bias, x, matrix, beta=2.0))
