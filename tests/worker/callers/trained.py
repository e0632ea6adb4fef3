"""Models with PyTorch's side of a program, as a training script has it."""

import numpy as np
import torch
from torch import nn

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
LABELS = ["cat", "dog", "bird", "fish", "cow"]


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        return self.head(self.conv(image).relu().mean((2, 3)))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.line = nn.Linear(16, 16)

    def forward(self, ids, mask):
        return self.line(self.table(ids)) * (1 + mask[..., None])


class Speed(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(1, 4)

    def forward(self, speed):
        return self.line(speed).tanh()


class Sound(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 8, stride=4)

    def forward(self, sound):
        return self.conv(sound[:, None]).abs().mean(-1)


def list_pictures():
    """Return two pictures of 32 by 32 pixels with large areas, as a photo has."""
    areas = np.random.default_rng(0).random((2, 8, 8, 3))
    return [(np.kron(area, np.ones((4, 4, 1))) * 255).astype(np.uint8) for area in areas]


def classify(model, picture):
    image = (picture.astype(np.float32) / 255 - MEAN) / DEVIATION
    image = torch.from_numpy(image.transpose(2, 0, 1)[None].copy())
    # As many programs do, it calls the model twice.
    scores = model(image).softmax(-1)[0]
    return {"scores": scores, "label": LABELS[int(model(image).argmax())]}


def score_small(model, picture):
    image = torch.from_numpy((picture.astype(np.float32) / 255).transpose(2, 0, 1)[None].copy())
    size = (20, 20)
    return model(nn.functional.interpolate(image, size, mode="bilinear", antialias=True))[0]


def list_texts():
    return [[3, 4, 5], [7, 8], [9, 10, 11, 12]]


def embed(model, text):
    ids = torch.tensor([text + [0] * (6 - len(text))])
    mask = (ids > 0).long()
    states = model(ids, mask)
    return (states * mask[..., None]).sum(1) / mask.sum(1)


def list_speeds():
    return [1.5, 2.25, 7.0]


def list_equal_speeds():
    return [2.0, 2.0]


def steer(model, speed):
    return model(torch.tensor([[speed]]))


def steer_at_random(model, speed):
    return model(torch.tensor([[speed]])) + np.random.default_rng().random()


def steer_with_rounded_weights(model, speed):
    model.line.weight.data.round_()
    return steer(model, speed)


def steer_without_model(model, speed):
    return torch.tensor([speed])


def list_one_speed():
    return [2.0]


def list_sounds():
    generator = np.random.default_rng(1)
    return [generator.standard_normal(64).astype(np.float32) for _ in range(2)]


def hear(model, sound):
    return model(torch.cat([torch.full((16,), 0.5), torch.from_numpy(sound)])[None])


def list_written_speeds():
    return [np.array([value], np.float32) for value in (0.5, 1.25, -2.0)]


def steer_half(model, speeds):
    """Write into the sample, too."""
    speeds /= 2
    return steer(model, float(speeds[0]))
