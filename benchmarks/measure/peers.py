"""The nets of examples/ as one would write them for PyTorch by hand: their parameters come in the prototxts' order."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor


def _pool(kernel: int, stride: int, padding: int = 0) -> nn.Module:
    return nn.MaxPool2d(kernel, stride, padding, ceil_mode=True)


def _conv(channels: int, outputs: int, kernel: int, **more: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, outputs, kernel, **more), nn.ReLU(inplace=True))


def _lrn() -> nn.Module:
    return nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75)


class Classifier(nn.Module):
    """A chain of layers and the mean cross entropy of what it says."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, data: Tensor, labels: Tensor) -> Tensor:
        """The loss."""
        return functional.cross_entropy(self.layers(data), labels)


def lenet() -> nn.Module:
    """examples/lenet."""
    first = (nn.Conv2d(1, 20, 5), _pool(2, 2), nn.Conv2d(20, 50, 5), _pool(2, 2), nn.Flatten())
    return Classifier(*first, nn.Linear(800, 500), nn.ReLU(inplace=True), nn.Linear(500, 10))


def caffenet() -> nn.Module:
    """examples/caffenet."""
    return Classifier(
        *(_conv(3, 96, 11, stride=4), _pool(3, 2), _lrn()),
        *(_conv(96, 256, 5, padding=2, groups=2), _pool(3, 2), _lrn()),
        _conv(256, 384, 3, padding=1),
        _conv(384, 384, 3, padding=1, groups=2),
        *(_conv(384, 256, 3, padding=1, groups=2), _pool(3, 2), nn.Flatten()),
        *(nn.Linear(9216, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)),
        *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)),
        nn.Linear(4096, 1000),
    )


class Inception(nn.Module):
    """Four branches side by side."""

    def __init__(self, channels: int, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int) -> None:
        super().__init__()
        self.one = _conv(channels, one, 1)
        self.three = nn.Sequential(_conv(channels, three[0], 1), _conv(*three, 3, padding=1))
        self.five = nn.Sequential(_conv(channels, five[0], 1), _conv(*five, 5, padding=2))
        self.pooled = nn.Sequential(_pool(3, 1, 1), _conv(channels, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        """[N, channels, H, W] → [N, sum of the branches, H, W]."""
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


def _auxiliary(channels: int) -> nn.Module:
    first = (nn.AvgPool2d(5, 3, ceil_mode=True), _conv(channels, 128, 1), nn.Flatten(), nn.Linear(2048, 1024))
    return Classifier(*first, nn.ReLU(inplace=True), nn.Dropout(0.7), nn.Linear(1024, 1000))


class GoogLeNet(nn.Module):
    """examples/googlenet, with both auxiliary losses."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *(_conv(3, 64, 7, stride=2, padding=3), _pool(3, 2), _lrn()),
            *(_conv(64, 64, 1), _conv(64, 192, 3, padding=1), _lrn(), _pool(3, 2)),
            Inception(192, 64, (96, 128), (16, 32), 32),
            *(Inception(256, 128, (128, 192), (32, 96), 64), _pool(3, 2)),
            Inception(480, 192, (96, 208), (16, 48), 64),
        )
        self.first = _auxiliary(512)
        self.middle = nn.Sequential(
            Inception(512, 160, (112, 224), (24, 64), 64),
            Inception(512, 128, (128, 256), (24, 64), 64),
            Inception(512, 112, (144, 288), (32, 64), 64),
        )
        self.second = _auxiliary(528)
        self.rest = Classifier(
            *(Inception(528, 256, (160, 320), (32, 128), 128), _pool(3, 2)),
            Inception(832, 256, (160, 320), (32, 128), 128),
            Inception(832, 384, (192, 384), (48, 128), 128),
            *(nn.AvgPool2d(7), nn.Flatten(), nn.Dropout(0.4), nn.Linear(1024, 1000)),
        )

    def forward(self, data: Tensor, labels: Tensor) -> Tensor:
        """The loss; the auxiliary ones count 0.3."""
        early = self.stem(data)
        late = self.middle(early)
        return self.rest(late, labels) + 0.3 * (self.first(early, labels) + self.second(late, labels))


def _norm(channels: int, outputs: int, kernel: int, stride: int = 1) -> nn.Module:
    conv = nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, momentum=0.1))


class Bottleneck(nn.Module):
    """Three convolutions beside an identity or a projection."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.branch1 = _norm(channels, 4 * width, 1, stride) if channels != 4 * width else nn.Identity()
        self.branch2 = nn.Sequential(
            *(_norm(channels, width, 1, stride), nn.ReLU(inplace=True)),
            *(_norm(width, width, 3), nn.ReLU(inplace=True)),
            _norm(width, 4 * width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, channels, H, W] → [N, 4 × width, H / stride, W / stride]."""
        return functional.relu(self.branch1(x) + self.branch2(x), inplace=True)


def _stage(channels: int, width: int, blocks: int, stride: int) -> list[nn.Module]:
    rest = [Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)]
    return [Bottleneck(channels, width, stride), *rest]


def resnet50() -> nn.Module:
    """examples/resnet50."""
    return Classifier(
        *(_norm(3, 64, 7, 2), nn.ReLU(inplace=True), _pool(3, 2)),
        *(*_stage(64, 64, 3, 1), *_stage(256, 128, 4, 2), *_stage(512, 256, 6, 2), *_stage(1024, 512, 3, 2)),
        *(nn.AvgPool2d(7), nn.Flatten(), nn.Linear(2048, 1000)),
    )


PEERS: dict[str, Callable[[], nn.Module]] = {
    "lenet": lenet,
    "caffenet": caffenet,
    "googlenet": GoogLeNet,
    "resnet50": resnet50,
}
"""Folder of examples/ → its net."""
