"""ESPCN, the network of the super-resolution tutorial, with weights that interpolate."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SuperResolution(nn.Module):
    """Enlarge a channel of a picture by sub-pixel convolution: https://arxiv.org/abs/1609.05158.

    The tutorial loads trained weights. These ones repeat each pixel and add small noise, so the
    example needs no download and the enlarged picture shows its source.
    """

    def __init__(self, upscale: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 64, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, upscale**2, 3, padding=1),
            nn.PixelShuffle(upscale),
        )
        with torch.no_grad():
            for layer in self.layers:
                if isinstance(layer, nn.Conv2d):
                    layer.weight.mul_(0.1)
                    layer.bias.zero_()
                    center = layer.kernel_size[0] // 2
                    layer.weight[:, 0, center, center] += 1 if layer.in_channels == 1 else 0
                    for channel in range(layer.out_channels if layer.in_channels > 1 else 0):
                        layer.weight[channel, channel % layer.in_channels, center, center] += 1

    def forward(self, luma: Tensor) -> Tensor:
        """Return the enlarged channel."""
        enlarged: Tensor = self.layers(luma)
        return enlarged
