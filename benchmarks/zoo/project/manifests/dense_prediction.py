"""Small forms of models that compute a value for each pixel or place of an image."""

import torch
from classifiers import convolve
from torch import Tensor, nn
from torch.nn import functional
from weights import vary_weights


class UNet(nn.Module):
    """A U-Net: down, up by transposed convolution, and skips that are cropped or padded."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = convolve(3, 8), convolve(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.last = convolve(16, 8)
        self.head = nn.Conv2d(8, 2, 1)
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute a mask of the size of the image."""
        wide = self.first(image)
        deep = self.up(self.second(functional.max_pool2d(wide, 2)))
        rows, columns = wide.shape[2] - deep.shape[2], wide.shape[3] - deep.shape[3]
        deep = functional.pad(deep, [0, columns, 0, rows])
        mask: Tensor = self.head(self.last(torch.cat([wide, deep], dim=1)))
        return mask


class DeepLab(nn.Module):
    """DeepLab v3: dilated convolutions, a pooled branch, and interpolation to the image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(convolve(3, 16, 3, 2), convolve(16, 16, 3, 2))
        self.dilated = nn.ModuleList(
            nn.Conv2d(16, 8, 3, padding=rate, dilation=rate) for rate in (1, 2, 4)
        )
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1), nn.ReLU())
        self.head = nn.Conv2d(32, 4, 1)
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute logits of the size of the image."""
        size = image.shape[-2:]
        x = self.body(image)
        pooled = functional.interpolate(
            self.pooled(x), size=x.shape[-2:], mode="bilinear", align_corners=False
        )
        x = self.head(torch.cat([*(layer(x) for layer in self.dilated), pooled], dim=1))
        return functional.interpolate(x, size=size, mode="bilinear", align_corners=False)


class FPN(nn.Module):
    """A feature pyramid with nearest interpolation between its levels."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            [convolve(3, 8, 3, 2), convolve(8, 16, 3, 2), convolve(16, 16, 3, 2)]
        )
        self.lateral = nn.ModuleList([nn.Conv2d(width, 8, 1) for width in (8, 16, 16)])
        self.smooth = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)])
        vary_weights(self)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Compute the features of each level, the finest first."""
        found, x = [], image
        for level in self.levels:
            x = level(x)
            found.append(x)
        top = self.lateral[2](found[2])
        results = [self.smooth[2](top)]
        for number in (1, 0):
            here = self.lateral[number](found[number])
            top = here + functional.interpolate(top, size=here.shape[-2:], mode="nearest")
            results.insert(0, self.smooth[number](top))
        return tuple(results)


class SSD(nn.Module):
    """A single-shot detector without suppression: class scores and decoded boxes."""

    def __init__(self, classes: int = 3, anchors: int = 2) -> None:
        super().__init__()
        self.classes = classes
        self.first, self.second = convolve(3, 16, 3, 4), convolve(16, 16, 3, 2)
        self.scores = nn.ModuleList(nn.Conv2d(16, anchors * classes, 3, padding=1) for _ in "ab")
        self.boxes = nn.ModuleList(nn.Conv2d(16, anchors * 4, 3, padding=1) for _ in "ab")
        places = torch.cat([self.place(8, anchors), self.place(4, anchors)])
        self.register_buffer("places", places)
        vary_weights(self)

    @staticmethod
    def place(size: int, anchors: int) -> Tensor:
        """Return the centers and sizes of the anchors of a level."""
        steps = (torch.arange(size) + 0.5) / size
        rows, columns = torch.meshgrid(steps, steps, indexing="ij")
        centers = torch.stack([columns, rows], -1).reshape(-1, 1, 2).expand(-1, anchors, 2)
        return torch.cat([centers, torch.full_like(centers, 1 / size)], -1).reshape(-1, 4)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the scores and the boxes of all anchors."""
        first = self.first(image)
        levels = (first, self.second(first))
        scores, boxes = [], []
        for level, score, box in zip(levels, self.scores, self.boxes, strict=True):
            scores.append(
                score(level).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, self.classes))
            )
            boxes.append(box(level).permute(0, 2, 3, 1).reshape(level.shape[0], -1, 4))
        shift = torch.cat(boxes, 1)
        centers = self.places[:, :2] + 0.1 * shift[..., :2] * self.places[:, 2:]
        sizes = self.places[:, 2:] * torch.exp(0.2 * shift[..., 2:].clamp(max=4.0))
        corners = torch.cat([centers - sizes / 2, centers + sizes / 2], -1)
        return torch.cat(scores, 1).softmax(-1), corners


class YOLO(nn.Module):
    """A one-stage detector with a grid that depends on the size of the image."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(convolve(3, 16, 3, 4), convolve(16, 16, 3, 2))
        self.head = nn.Conv2d(16, 5 + classes, 1)
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute box, confidence and class scores of each cell."""
        x = self.head(self.body(image))
        height, width = x.shape[-2:]
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack((columns, rows), 2).to(x.dtype)
        x = x.permute(0, 2, 3, 1)
        centers = (x[..., :2].sigmoid() + grid) * 8
        sizes = x[..., 2:4].exp() * 8
        return torch.cat([centers, sizes, x[..., 4:].sigmoid()], -1).flatten(1, 2)


class BestBoxes(nn.Module):
    """A detector that keeps the best boxes of each image by their scores."""

    def __init__(self) -> None:
        super().__init__()
        self.detector = YOLO()

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes, scores and classes of the 8 best places."""
        found = self.detector(image)
        scores, classes = (found[..., 4:5] * found[..., 5:]).max(-1)
        best, places = scores.topk(8, dim=1)
        boxes = found[..., :4].gather(1, places.unsqueeze(-1).expand(-1, -1, 4))
        return boxes, best, classes.gather(1, places)


class OpticalFlow(nn.Module):
    """RAFT: features of two images, all correlations, and steps that look them up."""

    def __init__(self, steps: int = 2) -> None:
        super().__init__()
        self.steps = steps
        self.features = nn.Sequential(convolve(3, 16, 3, 4), nn.Conv2d(16, 16, 3, 2, 1))
        self.update = nn.Sequential(convolve(9 + 2, 16), nn.Conv2d(16, 2, 3, padding=1))
        vary_weights(self)

    def look_up(self, volume: Tensor, flow: Tensor) -> Tensor:
        """Sample the correlations around the current target of each pixel."""
        batch, _, height, width = flow.shape
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack([columns, rows]).to(flow.dtype)
        target = (grid + flow).permute(0, 2, 3, 1).reshape(-1, 1, 1, 2)
        around = torch.linspace(-1, 1, 3)
        offsets = torch.stack(torch.meshgrid(around, around, indexing="ij"), -1)
        places = target + offsets
        scale = torch.tensor([width - 1, height - 1], dtype=flow.dtype)
        found = functional.grid_sample(volume, 2 * places / scale - 1, align_corners=True)
        return found.reshape(batch, height, width, 9).permute(0, 3, 1, 2)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Compute the motion of each pixel at an eighth of the resolution."""
        one, two = self.features(first), self.features(second)
        batch, channels, height, width = one.shape
        volume = torch.einsum("bchw,bcij->bhwij", one, two) / channels**0.5
        volume = volume.reshape(-1, 1, height, width)
        flow = one.new_zeros(batch, 2, height, width)
        for _ in range(self.steps):
            flow = flow + self.update(torch.cat([self.look_up(volume, flow), flow], 1))
        return flow


class SuperResolution(nn.Module):
    """Enhance an image by convolutions and a pixel shuffle; add the interpolated image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.PReLU(16))
        self.tail = nn.Sequential(nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2))
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute an image of twice the size."""
        base = functional.interpolate(image, scale_factor=2, mode="bicubic", align_corners=False)
        result: Tensor = base + self.tail(self.body(image))
        return result


class StyleTransfer(nn.Module):
    """Reflection padding, instance normalization and nearest interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.ReflectionPad2d(4), nn.Conv2d(3, 8, 9), nn.InstanceNorm2d(8, affine=True)),
            *(nn.ReLU(), nn.Upsample(scale_factor=2, mode="nearest")),
            *(nn.ReflectionPad2d(1), nn.Conv2d(8, 3, 3), nn.Tanh()),
        )
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the image in the other style."""
        result: Tensor = self.body(image)
        return result


class Keypoints(nn.Module):
    """Heat maps of points, and the expected place of each."""

    def __init__(self, points: int = 4) -> None:
        super().__init__()
        self.body = nn.Sequential(convolve(3, 16, 3, 2), nn.Conv2d(16, points, 1))
        vary_weights(self)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the places in pixels, and the largest value of each map."""
        maps = self.body(image)
        height, width = maps.shape[-2:]
        share = maps.flatten(2).softmax(-1).view_as(maps)
        x = (share.sum(2) * torch.arange(width)).sum(-1)
        y = (share.sum(3) * torch.arange(height)).sum(-1)
        return torch.stack([x, y], -1), maps.amax((2, 3))
