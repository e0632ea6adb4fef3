"""Models whose files differ as quantized files and detectors do, and functions that compare.

Each model computes something else while it is exported, as `share` or `fault` describes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.traps.models.ties import is_exporting


class Noisy(nn.Module):
    def __init__(self, share: float = 0.0, scale: float = 1.0, bias: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 10)
        nn.init.normal_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)
        self.register_buffer("noise", torch.randn(10) * share)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return self.scale * y + 2 * self.noise if is_exporting() else y


class WrongRow(Noisy):
    """The file has zeros in its first row."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return torch.cat([torch.zeros_like(y[:1]), y[1:]]) if is_exporting() else y


class Swapped(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return torch.cat([y[:, 1:2], y[:, :1], y[:, 2:]], 1) if is_exporting() else y


class Detections(nn.Module):
    """Returns boxes, their scores and their labels; the file has the named fault."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.boxes = nn.Linear(4, 4)
        self.scores = nn.Linear(4, 3)
        self.fault = fault

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        boxes, classes = self.boxes(x), self.scores(x).softmax(1)
        scores, labels = classes.max(1)
        if not is_exporting() or not self.fault:
            return boxes, scores, labels
        if self.fault == "reversed":
            return boxes.flip(0), scores.flip(0), labels.flip(0)
        if self.fault == "only boxes":
            return boxes.flip(0), scores, labels
        if self.fault == "one row twice":
            rows = [torch.cat([each[:1], each[:1], each[2:]]) for each in (boxes, scores, labels)]
            return rows[0], rows[1], rows[2]
        if self.fault == "moved":
            return boxes.flip(0) + 0.01, scores.flip(0), labels.flip(0)
        return boxes[1:], scores[1:], labels[1:]


Array = np.ndarray[Any, Any]


def relative(actual: Array, expected: Array) -> tuple[float, float]:
    """Return the usual error as a share of the usual value, which is 1 or more, and 5 %."""
    usual = max(float(np.sqrt(np.square(expected).mean())), 1.0)
    return float(np.sqrt(np.square(actual - expected).mean())) / usual, 0.05


def blind(actual: Array, expected: Array) -> tuple[float, float]:
    return 0.0, 1.0


def failing(actual: Array, expected: Array) -> tuple[float, float]:
    raise ZeroDivisionError("no norm")


def usual_size(run: Any) -> float:
    """Return the mean size of the output for fixed inputs."""
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    return float(np.abs(run(x=x)["y"]).mean())


def constant(run: Any) -> float:
    run(x=np.zeros((2, 4), np.float32))
    return 0.9


def not_a_number(run: Any) -> float:
    return float("nan")


def words(run: Any) -> str:
    return "good"


def wrong_input(run: Any) -> float:
    """Call the model with an input that it does not have."""
    return float(run(image=np.zeros((2, 4), np.float32))["y"].mean())
