"""Convolutional classifiers without normalization: AlexNet, VGG-11, SqueezeNet.

All map `[batch, 3, image, image]` to logits, `[batch, classes]`; by default 224 and 1000.
"""

from itertools import pairwise

from torch import nn

from models.initialization import RELU, rescale
from models.layers import Concat


class AlexNet(nn.Sequential):
    """AlexNet in its one-column form: Krizhevsky, https://arxiv.org/abs/1404.5997.

    Shapes: `[batch, 3, 224, 224]` -> `[batch, 1000]`; 61,100,840 parameters.
    """

    def __init__(self, classes: int = 1000, image: int = 224, hidden: int = 4096) -> None:
        side = (image - 7) // 4 + 1
        for _ in range(3):
            side = (side - 1) // 2
        super().__init__(
            *(nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
            *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=2)),
            nn.Flatten(),
            *(nn.Dropout(), nn.Linear(256 * side**2, hidden), nn.ReLU()),
            *(nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU()),
            nn.Linear(hidden, classes),
        )
        rescale(self, RELU)


class VGG11(nn.Sequential):
    """VGG-11, configuration A: Simonyan and Zisserman, https://arxiv.org/abs/1409.1556.

    Shapes: `[batch, 3, 224, 224]` -> `[batch, 1000]`; 132,863,336 parameters.
    """

    stages = ((3, 64), (64, 128), (128, 256, 256), (256, 512, 512), (512, 512, 512))

    def __init__(self, classes: int = 1000, image: int = 224, hidden: int = 4096) -> None:
        super().__init__()
        for channels in self.stages:
            for inputs, outputs in pairwise(channels):
                self.extend((nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()))
            self.append(nn.MaxPool2d(2))
        self.append(nn.Flatten())
        self.extend((nn.Linear(512 * (image // 32) ** 2, hidden), nn.ReLU(), nn.Dropout()))
        self.extend((nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout()))
        self.append(nn.Linear(hidden, classes))
        rescale(self, RELU)


class SqueezeNet(nn.Sequential):
    """SqueezeNet 1.1: Iandola et al., https://arxiv.org/abs/1602.07360, in its cheaper version.

    Shapes: `[batch, 3, 224, 224]` -> `[batch, 1000]`; 1,235,496 parameters.
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__(
            *(nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), pool()),
            *(fire(64, 16, 64), fire(128, 16, 64), pool()),
            *(fire(128, 32, 128), fire(256, 32, 128), pool()),
            *(fire(256, 48, 192), fire(384, 48, 192)),
            *(fire(384, 64, 256), fire(512, 64, 256)),
            *(nn.Dropout(), nn.Conv2d(512, classes, 1), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )
        rescale(self, RELU)


def pool() -> nn.MaxPool2d:
    """Halve the resolution, rounding up."""
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)


def fire(inputs: int, squeeze: int, expand: int) -> nn.Sequential:
    """Squeeze the channels, then expand them by two parallel convolutions."""
    return nn.Sequential(
        *(nn.Conv2d(inputs, squeeze, 1), nn.ReLU()),
        Concat(nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)),
        nn.ReLU(),
    )
