"""Models with images as outputs: super-resolution and a generator."""

import torch
from torch import nn

from models.initialization import RELU, calibrate, rescale


class SuperResolution(nn.Sequential):
    """ESPCN as in the PyTorch ONNX tutorial: Shi et al., https://arxiv.org/abs/1609.05158.

    Shapes: luma `[batch, 1, h, w]` -> `[batch, 1, h * upscale, w * upscale]`; 59,657 parameters
    at an upscale of 3.
    """

    def __init__(self, upscale: int = 3) -> None:
        super().__init__(
            *(nn.Conv2d(1, 64, 5, padding=2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(64, 32, 3, padding=1), nn.ReLU()),
            nn.Conv2d(32, upscale**2, 3, padding=1),
            nn.PixelShuffle(upscale),
        )
        rescale(self, RELU)


class DCGANGenerator(nn.Sequential):
    """The generator of DCGAN: Radford et al., https://arxiv.org/abs/1511.06434.

    Shapes: `[batch, 100, 1, 1]` -> `[batch, 3, 64, 64]` in ±1; 3,576,704 parameters.
    """

    def __init__(self, latent: int = 100, features: int = 64, colours: int = 3) -> None:
        super().__init__(
            *upsample(latent, features * 8, stride=1, padding=0),
            *upsample(features * 8, features * 4),
            *upsample(features * 4, features * 2),
            *upsample(features * 2, features),
            nn.ConvTranspose2d(features, colours, 4, stride=2, padding=1, bias=False),
            nn.Tanh(),
        )
        for layer in self:
            if isinstance(layer, nn.ConvTranspose2d):
                nn.init.normal_(layer.weight, std=0.02)  # from the paper
        calibrate(self, torch.randn(8, latent, 1, 1))


def upsample(inputs: int, outputs: int, stride: int = 2, padding: int = 1) -> nn.Sequential:
    """A transposed convolution that doubles the resolution; at stride 1, from 1x1 to 4x4."""
    return nn.Sequential(
        nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )
