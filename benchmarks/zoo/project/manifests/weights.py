"""Weights as after training, for models that are built without a checkpoint."""

import torch
from torch import nn


@torch.no_grad()
def vary_weights(model: nn.Module) -> None:
    """Move all weights and statistics away from their initial values.

    Initial weights hide faults: biases are zero, scales are one, matrices are almost zero.
    """
    for value in model.parameters():
        if value.is_floating_point():
            spread = value[0].numel() ** -0.5 if value.dim() > 1 else 0.1
            value.add_(torch.randn_like(value) * spread)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.running_mean is not None:
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
            layer.weight.uniform_(0.5, 1.5)
