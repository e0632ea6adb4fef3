"""MobileNet v3 small: Howard et al., https://arxiv.org/abs/1905.02244."""

import torch
from torch import Tensor, nn

from models.initialization import RELU, calibrate, rescale


class MobileNetV3Small(nn.Sequential):
    """MobileNet v3 small (table 2), with almost constant output under default weights.

    Shapes: `[batch, 3, 224, 224]` -> `[batch, 1000]`; 2,542,856 parameters.
    """

    def __init__(self, classes: int = 1000, image: int = 224) -> None:
        relu, hard_swish = nn.ReLU(), nn.Hardswish()
        super().__init__(
            *(convolution(3, 16, kernel=3, stride=2), hard_swish),
            Bottleneck((16, 16, 16), kernel=3, stride=2, activation=relu, squeeze=8),
            Bottleneck((16, 72, 24), kernel=3, stride=2, activation=relu),
            Bottleneck((24, 88, 24), kernel=3, stride=1, activation=relu),
            Bottleneck((24, 96, 40), kernel=5, stride=2, activation=hard_swish, squeeze=24),
            Bottleneck((40, 240, 40), kernel=5, stride=1, activation=hard_swish, squeeze=64),
            Bottleneck((40, 240, 40), kernel=5, stride=1, activation=hard_swish, squeeze=64),
            Bottleneck((40, 120, 48), kernel=5, stride=1, activation=hard_swish, squeeze=32),
            Bottleneck((48, 144, 48), kernel=5, stride=1, activation=hard_swish, squeeze=40),
            Bottleneck((48, 288, 96), kernel=5, stride=2, activation=hard_swish, squeeze=72),
            Bottleneck((96, 576, 96), kernel=5, stride=1, activation=hard_swish, squeeze=144),
            Bottleneck((96, 576, 96), kernel=5, stride=1, activation=hard_swish, squeeze=144),
            *(convolution(96, 576, kernel=1), hard_swish),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            *(nn.Linear(576, 1024), hard_swish, nn.Dropout(0.2)),
            nn.Linear(1024, classes),
        )
        rescale(self, RELU)
        calibrate(self, torch.randn(2 * (224 // image) ** 2, 3, image, image))


class Bottleneck(nn.Module):
    """Expand, convolve each channel, weigh the channels, project; residual if shapes are equal.

    Shapes: `[batch, channels[0], h, w]` -> `[batch, channels[2], h / stride, w / stride]`.
    """

    def __init__(
        self,
        channels: tuple[int, int, int],
        *,
        kernel: int,
        stride: int,
        activation: nn.Module,
        squeeze: int | None = None,
    ) -> None:
        super().__init__()
        inputs, expanded, outputs = channels
        self.residual = stride == 1 and inputs == outputs
        self.body = nn.Sequential()
        if expanded != inputs:
            self.body.extend((convolution(inputs, expanded, kernel=1), activation))
        self.body.append(convolution(expanded, expanded, kernel, stride, groups=expanded))
        self.body.append(activation)
        if squeeze is not None:
            self.body.append(SqueezeExcite(expanded, squeeze))
        self.body.append(convolution(expanded, outputs, kernel=1))

    def forward(self, x: Tensor) -> Tensor:
        """Add the input to the result if both have the same shape."""
        y: Tensor = self.body(x)
        return x + y if self.residual else y


class SqueezeExcite(nn.Module):
    """Weigh each channel by the averages of all channels; the shape does not change."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.weight = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            *(nn.Conv2d(channels, squeeze, 1), nn.ReLU()),
            *(nn.Conv2d(squeeze, channels, 1), nn.Hardsigmoid()),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Multiply each channel by its weight in 0..1."""
        weighted: Tensor = x * self.weight(x)
        return weighted


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution with padding for its kernel, and its BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01),
    )
