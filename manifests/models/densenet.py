"""DenseNet-121: Huang et al., https://arxiv.org/abs/1608.06993."""

import torch
from torch import nn

from models.initialization import RELU, calibrate, rescale
from models.layers import Concat


class DenseNet(nn.Sequential):
    """DenseNet with bottlenecks and half of the channels between blocks; by default 121 layers.

    Shapes: `[batch, 3, 224, 224]` -> `[batch, 1000]`; 7,978,856 parameters.
    """

    def __init__(
        self,
        classes: int = 1000,
        growth: int = 32,
        depths: tuple[int, ...] = (6, 12, 24, 16),
        image: int = 224,
    ) -> None:
        channels = 2 * growth
        super().__init__(
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
            *(nn.BatchNorm2d(channels), nn.ReLU()),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        for block, depth in enumerate(depths):
            if block > 0:
                self.append(transition(channels))
                channels //= 2
            for _ in range(depth):
                self.append(Concat(nn.Identity(), bottleneck(channels, growth)))
                channels += growth
        self.extend((nn.BatchNorm2d(channels), nn.ReLU()))
        self.extend((nn.AdaptiveAvgPool2d(1), nn.Flatten()))
        self.append(nn.Linear(channels, classes))
        rescale(self, RELU)
        calibrate(self, torch.randn(2 * (224 // image) ** 2, 3, image, image))


def bottleneck(channels: int, growth: int) -> nn.Sequential:
    """Compute `growth` new channels from all previous channels."""
    return nn.Sequential(
        *(nn.BatchNorm2d(channels), nn.ReLU()),
        nn.Conv2d(channels, 4 * growth, 1, bias=False),
        *(nn.BatchNorm2d(4 * growth), nn.ReLU()),
        nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
    )


def transition(channels: int) -> nn.Sequential:
    """Halve the channels and the resolution."""
    return nn.Sequential(
        *(nn.BatchNorm2d(channels), nn.ReLU()),
        nn.Conv2d(channels, channels // 2, 1, bias=False),
        nn.AvgPool2d(2),
    )
