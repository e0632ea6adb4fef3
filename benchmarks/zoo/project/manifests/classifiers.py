"""Small forms of well-known image classifiers, with the operators of their usual code."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from weights import vary_weights


def convolve(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """A convolution with its BatchNorm and its activation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Classifier(nn.Module):
    """A body of convolutions, the mean of each channel, and a linear layer."""

    def __init__(self, body: nn.Module, width: int, classes: int = 10) -> None:
        super().__init__()
        self.body = body
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(width, classes))
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the logits."""
        logits: Tensor = self.head(torch.flatten(self.pool(self.body(image)), 1))
        return logits


class Bottleneck(nn.Module):
    """Three convolutions with a shortcut (ResNet, ResNeXt)."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        inner = outputs // 2
        self.body = nn.Sequential(
            convolve(inputs, inner, 1),
            convolve(inner, inner, 3, stride, groups),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut."""
        out: Tensor = self.body(x)
        out += self.shortcut(x)
        return functional.relu(out)


def resnet(groups: int = 1) -> nn.Module:
    """Return a ResNet, or a ResNeXt with several groups."""
    body = nn.Sequential(
        *(convolve(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1)),
        *(Bottleneck(16, 32, 1, groups), Bottleneck(32, 64, 2, groups)),
    )
    return Classifier(body, 64)


class Squeeze(nn.Module):
    """Weigh the channels by their means (squeeze and excite)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, width // 4, 1)
        self.expand = nn.Conv2d(width // 4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply each channel by its weight."""
        scale = functional.adaptive_avg_pool2d(x, 1)
        scale = self.expand(functional.silu(self.reduce(scale)))
        return torch.sigmoid(scale) * x


class Inverted(nn.Module):
    """Expand, convolve each channel, project (MobileNet, EfficientNet, MNASNet)."""

    def __init__(self, width: int, act: type[nn.Module], squeeze: bool) -> None:
        super().__init__()
        inner = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), act()),
            nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=False),
            *(nn.BatchNorm2d(inner), act()),
            Squeeze(inner) if squeeze else nn.Identity(),
            *(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add the input."""
        return x + self.body(x)


def mobilenet_v2() -> nn.Module:
    """Return a MobileNet v2."""
    return Classifier(
        nn.Sequential(convolve(3, 16, 3, 2), *(Inverted(16, nn.ReLU6, False) for _ in range(2))), 16
    )


def mobilenet_v3() -> nn.Module:
    """Return a MobileNet v3."""
    return Classifier(
        nn.Sequential(convolve(3, 16, 3, 2), *(Inverted(16, nn.Hardswish, True) for _ in range(2))),
        16,
    )


def efficientnet() -> nn.Module:
    """Return an EfficientNet."""
    return Classifier(
        nn.Sequential(convolve(3, 16, 3, 2), *(Inverted(16, nn.SiLU, True) for _ in range(2))), 16
    )


class DenseLayer(nn.Module):
    """Append new channels to all earlier ones (DenseNet)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, 8, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the new channels."""
        return torch.cat([x, self.conv(functional.relu(self.norm(x)))], 1)


def densenet() -> nn.Module:
    """Return a DenseNet."""
    layers = (DenseLayer(16 + 8 * number) for number in range(3))
    return Classifier(nn.Sequential(convolve(3, 16, 3, 2), *layers, nn.AvgPool2d(2, 2)), 40)


class Mixed(nn.Module):
    """Parallel branches of different kernels (Inception, GoogLeNet)."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch1 = convolve(inputs, 8, 1)
        self.branch3 = nn.Sequential(convolve(inputs, 8, 1), convolve(8, 8, 3))
        self.branch5 = nn.Sequential(convolve(inputs, 8, 1), convolve(8, 8, 5))
        self.pool = convolve(inputs, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the branches."""
        pooled = self.pool(functional.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        return torch.cat([self.branch1(x), self.branch3(x), self.branch5(x), pooled], 1)


def inception() -> nn.Module:
    """Return an Inception network with pooling that rounds sizes up."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    return Classifier(nn.Sequential(convolve(3, 16, 3, 2), pool, Mixed(16), Mixed(32)), 32)


class Shuffle(nn.Module):
    """Split the channels, convolve one half, shuffle (ShuffleNet v2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.branch = nn.Sequential(convolve(half, half, 1), convolve(half, half, 3, 1, half))

    def forward(self, x: Tensor) -> Tensor:
        """Mix the channels of both halves."""
        kept, changed = x.chunk(2, dim=1)
        out = torch.cat((kept, self.branch(changed)), dim=1)
        batch, channels, height, width = out.size()
        out = out.view(batch, 2, channels // 2, height, width)
        out = torch.transpose(out, 1, 2).contiguous()
        return out.view(batch, channels, height, width)


def shufflenet() -> nn.Module:
    """Return a ShuffleNet v2."""
    return Classifier(nn.Sequential(convolve(3, 16, 3, 2), Shuffle(16), Shuffle(16)), 16)


class VGG(nn.Module):
    """A VGG with its pooling to a grid and its large linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2)),
        )
        self.grid = nn.AdaptiveAvgPool2d((4, 4))
        self.head = nn.Sequential(nn.Linear(256, 32), nn.ReLU(True), nn.Linear(32, 10))
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the logits."""
        logits: Tensor = self.head(self.grid(self.features(image)).flatten(1))
        return logits


class VisionTransformer(nn.Module):
    """A ViT with `nn.TransformerEncoder`, the usual short code."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        self.positions = nn.Parameter(torch.zeros(1, 17, 32))
        layer = nn.TransformerEncoderLayer(
            32, 4, 48, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the logits from the first token."""
        x = self.embed(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        logits: Tensor = self.head(self.encoder(x)[:, 0])
        return logits


class Mixer(nn.Module):
    """An MLP-Mixer: perceptrons over the patches, then over the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 24, 8, 8)
        self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24))
        self.norm1, self.norm2 = nn.LayerNorm(24), nn.LayerNorm(24)
        self.head = nn.Linear(24, 10)
        vary_weights(self)

    def forward(self, image: Tensor) -> Tensor:
        """Compute the logits."""
        x = self.embed(image).flatten(2).mT
        x = x + self.tokens(self.norm1(x).mT).mT
        x = x + self.channels(self.norm2(x))
        logits: Tensor = self.head(x.mean(1))
        return logits
