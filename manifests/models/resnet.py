"""ResNet-18: He et al., https://arxiv.org/abs/1512.03385."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.initialization import RELU, calibrate, rescale


class ResNet18(nn.Sequential):
    """ResNet-18 with BatchNorm statistics of noise.

    Shapes: `[batch, 3, 224, 224]` -> `[batch, 1000]`; 11,689,512 parameters.
    """

    def __init__(self, classes: int = 1000, image: int = 224) -> None:
        super().__init__(
            *(convolution(3, 64, kernel=7, stride=2), nn.ReLU()),
            nn.MaxPool2d(3, stride=2, padding=1),
            *(Block(64, 64), Block(64, 64)),
            *(Block(64, 128, stride=2), Block(128, 128)),
            *(Block(128, 256, stride=2), Block(256, 256)),
            *(Block(256, 512, stride=2), Block(512, 512)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            nn.Linear(512, classes),
        )
        rescale(self, RELU)
        calibrate(self, torch.randn(2 * (224 // image) ** 2, 3, image, image))


class Block(nn.Module):
    """Two convolutions with a residual connection.

    Shapes: `[batch, inputs, h, w]` -> `[batch, outputs, h / stride, w / stride]`.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride)
        self.residual = nn.Sequential(
            *(convolution(inputs, outputs, 3, stride), nn.ReLU()),
            convolution(outputs, outputs, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add the result of the convolutions to the input."""
        return functional.relu(self.residual(x) + self.shortcut(x))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution with padding for its kernel, and its BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )
