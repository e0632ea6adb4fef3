"""ESPCN, the network of the super-resolution tutorial."""

from __future__ import annotations

from torch import Tensor, nn


class SuperResolution(nn.Module):
    """Enlarge a channel of a picture by sub-pixel convolution: https://arxiv.org/abs/1609.05158."""

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

    def forward(self, luma: Tensor) -> Tensor:
        """Return the enlarged channel."""
        enlarged: Tensor = self.layers(luma)
        return enlarged
