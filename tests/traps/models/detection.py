"""Detectors: lists of images, boxes in the order of their scores, and a count that depends on them.

Each broken model computes something else while it is exported.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.traps.models.ties import is_exporting


class Detector(nn.Module):
    """Returns the boxes of two images above a score, the best one first."""

    def __init__(self, *, is_reversed: bool = False, threshold: float = 0.5) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 5, 3, padding=1)
        self.is_reversed = is_reversed
        self.threshold = threshold

    def forward(self, images: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        rows = [self.head(image[None])[0].flatten(1).t() for image in images]
        boxes = torch.cat(rows)
        scores = boxes[:, 4].sigmoid()
        changed = is_exporting()
        kept = torch.nonzero(scores > (self.threshold if changed else 0.5)).squeeze(1)
        order = scores[kept].argsort(descending=not (self.is_reversed and changed))
        kept = kept[order]
        return boxes[kept, :4], scores[kept], kept


class ReversedDetector(Detector):
    """Returns the worst box first while it is exported."""

    def __init__(self) -> None:
        super().__init__(is_reversed=True)


class EagerDetector(Detector):
    """Returns other counts of boxes while it is exported."""

    def __init__(self) -> None:
        super().__init__(threshold=0.52)
