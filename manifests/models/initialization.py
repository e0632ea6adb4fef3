"""Random weights that keep the size of a signal, so outputs differ from noise.

With PyTorch's default weights, every layer shrinks its input: the outputs of MobileNet v3 small for
any two images differ by less than 1e-9, and a comparison with any tolerance passes.
`rescale` and `calibrate` prevent that.
"""

import math

import torch
from torch import Tensor, nn

RELU = 2.0
"""A ReLU halves the second moment of its input (He et al., https://arxiv.org/abs/1502.01852)."""

LINEAR = 1.0
"""No nonlinearity to make up for, or one that a normalisation follows."""


@torch.no_grad()
def rescale(model: nn.Module, factor: float) -> None:
    """Give each weight matrix of `model` the variance `factor / fan_in`, in place.

    PyTorch draws these weights uniformly from ±1 / sqrt(fan_in). Their variance is
    1 / (3 fan_in), so they are only scaled.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.weight.mul_(math.sqrt(3 * factor))


@torch.no_grad()
def calibrate(model: nn.Module, sample: Tensor) -> None:
    """Set the running statistics of each BatchNorm layer to those of one forward pass.

    Args:
        model: The model, left in evaluation mode.
        sample: Its input: two images at full resolution, or as many pixels of small images.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.train()
        norm.momentum = None  # the running statistics are then the mean over all batches
    model(sample)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()
