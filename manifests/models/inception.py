"""Inception v3: Szegedy et al., https://arxiv.org/abs/1512.00567.

The evaluation graph, without the auxiliary classifier, which only training uses.
"""

import torch
from torch import nn

from models.initialization import RELU, calibrate, rescale
from models.layers import Concat


class InceptionV3(nn.Sequential):
    """Inception v3; its many parallel branches are sensitive to rounding.

    Shapes: `[batch, 3, 299, 299]` -> `[batch, 1000]`; 23,834,568 parameters.
    """

    def __init__(self, classes: int = 1000, image: int = 299) -> None:
        super().__init__(
            *(unit(3, 32, 3, stride=2), unit(32, 32, 3), unit(32, 64, 3, padding=1)),
            nn.MaxPool2d(3, stride=2),
            *(unit(64, 80, 1), unit(80, 192, 3)),
            nn.MaxPool2d(3, stride=2),
            *(mixed_35(192, 32), mixed_35(256, 64), mixed_35(288, 64)),
            reduce_35(288),
            *(mixed_17(768, 128), mixed_17(768, 160), mixed_17(768, 160), mixed_17(768, 192)),
            reduce_17(768),
            *(mixed_8(1280), mixed_8(2048)),
            *(nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten()),
            nn.Linear(2048, classes),
        )
        rescale(self, RELU)
        calibrate(self, torch.randn(2 * (299 // image) ** 2, 3, image, image))


def unit(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
        nn.ReLU(),
    )


def row(inputs: int, outputs: int, width: int = 7) -> nn.Sequential:
    """A 1 x `width` unit that keeps the resolution."""
    return unit(inputs, outputs, (1, width), padding=(0, width // 2))


def column(inputs: int, outputs: int, height: int = 7) -> nn.Sequential:
    """A `height` x 1 unit that keeps the resolution."""
    return unit(inputs, outputs, (height, 1), padding=(height // 2, 0))


def pooled(inputs: int, outputs: int) -> nn.Sequential:
    """A branch with an average pooling first."""
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), unit(inputs, outputs, 1))


def mixed_35(inputs: int, pool: int) -> Concat:
    """The block at 35 x 35 (figure 5): a 5x5 is two 3x3; 224 + `pool` channels."""
    return Concat(
        unit(inputs, 64, 1),
        nn.Sequential(unit(inputs, 48, 1), unit(48, 64, 5, padding=2)),
        nn.Sequential(
            unit(inputs, 64, 1),
            *(unit(64, 96, 3, padding=1), unit(96, 96, 3, padding=1)),
        ),
        pooled(inputs, pool),
    )


def reduce_35(inputs: int) -> Concat:
    """From 35 x 35 to 17 x 17 (figure 10); 480 more channels."""
    return Concat(
        unit(inputs, 384, 3, stride=2),
        nn.Sequential(unit(inputs, 64, 1), unit(64, 96, 3, padding=1), unit(96, 96, 3, stride=2)),
        nn.MaxPool2d(3, stride=2),
    )


def mixed_17(inputs: int, width: int) -> Concat:
    """The block at 17 x 17 (figure 6): a 7x7 is a 1x7 and a 7x1; 768 channels."""
    return Concat(
        unit(inputs, 192, 1),
        nn.Sequential(unit(inputs, width, 1), row(width, width), column(width, 192)),
        nn.Sequential(
            unit(inputs, width, 1),
            *(column(width, width), row(width, width)),
            *(column(width, width), row(width, 192)),
        ),
        pooled(inputs, 192),
    )


def reduce_17(inputs: int) -> Concat:
    """From 17 x 17 to 8 x 8; 512 more channels."""
    return Concat(
        nn.Sequential(unit(inputs, 192, 1), unit(192, 320, 3, stride=2)),
        nn.Sequential(
            unit(inputs, 192, 1),
            *(row(192, 192), column(192, 192)),
            unit(192, 192, 3, stride=2),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def mixed_8(inputs: int) -> Concat:
    """The block at 8 x 8 (figure 7): rows and columns side by side; 2048 channels."""
    return Concat(
        unit(inputs, 320, 1),
        nn.Sequential(unit(inputs, 384, 1), cross()),
        nn.Sequential(unit(inputs, 448, 1), unit(448, 384, 3, padding=1), cross()),
        pooled(inputs, 192),
    )


def cross() -> Concat:
    """A row and a column of the same 384 channels."""
    return Concat(row(384, 384, width=3), column(384, 384, height=3))
