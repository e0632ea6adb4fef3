"""Models of the section on vision, written without torchvision."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Video(nn.Module):
    """Convolutions over frames, as R3D: clips `[batch, 3, frames, height, width]` to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv3d(3, 4, (3, 3, 3), stride=(1, 2, 2), padding=1)
        self.norm = nn.BatchNorm3d(4)
        self.pool = nn.MaxPool3d((1, 2, 2))
        self.head = nn.Linear(4, 5)

    def forward(self, clip: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.norm(self.stem(clip))))
        return self.head(x.mean((2, 3, 4)))


class Segmentation(nn.Module):
    """A result and an auxiliary one in a dict, both of the size of the image, as FCN."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.classifier = nn.Conv2d(6, 4, 1)
        self.auxiliary = nn.Conv2d(6, 4, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        size = image.shape[-2:]
        x = torch.relu(self.backbone(image))
        return {
            name: nn.functional.interpolate(head(x), size=size, mode="bilinear")
            for name, head in (("out", self.classifier), ("aux", self.auxiliary))
        }


class Detection(nn.Module):
    """Boxes of several images: a list of images to a dict for each, as Faster R-CNN.

    The number of boxes depends on the values.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 6, 3, stride=4, padding=1)
        self.boxes = nn.Linear(6, 4)
        self.classes = nn.Linear(6, 3)

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        return [self.detect(image) for image in images]

    def detect(self, image: Tensor) -> dict[str, Tensor]:
        x = torch.relu(self.features(image[None]))[0].flatten(1).T
        scores, labels = self.classes(x).softmax(-1).max(-1)
        kept = torch.nonzero(scores > 0.4).squeeze(1)
        center, size = self.boxes(x)[kept].split(2, -1)
        boxes = torch.cat((center - size.abs(), center + size.abs()), -1)
        return {"boxes": boxes, "labels": labels[kept], "scores": scores[kept]}
