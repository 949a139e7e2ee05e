"""Claim: forward and backward of the torch engine's nets take no longer than those of hand-written PyTorch.

Run in a Python that has torch. Peers: plain modules of the same architecture, passes taken in turn, medians compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from caffe_on_grid.engine.torch.net import Net
from caffe_on_grid.engine.torch.random import Stream
from caffe_on_grid.proto import graph, schema, text, upgrade

EXAMPLES = Path(__file__).parent.parent / "examples"


class LeNet(nn.Module):
    """Two convolutions, two inner products."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.ip1, self.ip2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """The loss."""
        x = functional.max_pool2d(self.conv1(x), 2, 2)
        x = functional.max_pool2d(self.conv2(x), 2, 2).flatten(1)
        return functional.cross_entropy(self.ip2(functional.relu(self.ip1(x), inplace=True)), label)


class CaffeNet(nn.Module):
    """AlexNet with pooling before normalisation."""

    def __init__(self) -> None:
        super().__init__()
        relu, pool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)
        norm = nn.LocalResponseNorm(5, 1e-4, 0.75)
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 96, 11, 4), relu, pool, norm),
            *(nn.Conv2d(96, 256, 5, 1, 2, groups=2), relu, pool, norm),
            *(nn.Conv2d(256, 384, 3, 1, 1), relu, nn.Conv2d(384, 384, 3, 1, 1, groups=2), relu),
            *(nn.Conv2d(384, 256, 3, 1, 1, groups=2), relu, pool, nn.Flatten()),
            *(nn.Linear(9216, 4096), relu, nn.Dropout(), nn.Linear(4096, 4096), relu, nn.Dropout()),
            nn.Linear(4096, 1000),
        )

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return functional.cross_entropy(self.body(x), label)


def _conv(*args: Any, **more: Any) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(*args, **more), nn.ReLU(inplace=True))


class Inception(nn.Module):
    """Four branches, concatenated."""

    def __init__(self, c: int, a: int, b0: int, b: int, d0: int, d: int, p: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                _conv(c, a, 1),
                nn.Sequential(_conv(c, b0, 1), _conv(b0, b, 3, padding=1)),
                nn.Sequential(_conv(c, d0, 1), _conv(d0, d, 5, padding=2)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), _conv(c, p, 1)),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Channels one after the other."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def _side(channels: int) -> nn.Sequential:
    convolved = (nn.AvgPool2d(5, 3, ceil_mode=True), _conv(channels, 128, 1), nn.Flatten())
    return nn.Sequential(
        *convolved, nn.Linear(2048, 1024), nn.ReLU(inplace=True), nn.Dropout(0.7), nn.Linear(1024, 1000)
    )


class GoogLeNet(nn.Module):
    """With both side losses."""

    def __init__(self) -> None:
        super().__init__()
        pool, norm = nn.MaxPool2d(3, 2, ceil_mode=True), nn.LocalResponseNorm(5, 1e-4, 0.75)
        head = (
            _conv(3, 64, 7, stride=2, padding=3),
            pool,
            norm,
            _conv(64, 64, 1),
            _conv(64, 192, 3, padding=1),
            norm,
            pool,
        )
        threes = (Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64), pool)
        self.a = nn.Sequential(*head, *threes, Inception(480, 192, 96, 208, 16, 48, 64))
        self.b = nn.Sequential(
            Inception(512, 160, 112, 224, 24, 64, 64),
            Inception(512, 128, 128, 256, 24, 64, 64),
            Inception(512, 112, 144, 288, 32, 64, 64),
        )
        fives = (Inception(832, 256, 160, 320, 32, 128, 128), Inception(832, 384, 192, 384, 48, 128, 128))
        last = (nn.AvgPool2d(7), nn.Flatten(), nn.Dropout(0.4), nn.Linear(1024, 1000))
        self.c = nn.Sequential(Inception(528, 256, 160, 320, 32, 128, 128), pool, *fives, *last)
        self.sides = nn.ModuleList([_side(512), _side(528)])

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """The weighted losses."""
        a = self.a(x)
        b = self.b(a)
        sides = functional.cross_entropy(self.sides[0](a), label) + functional.cross_entropy(self.sides[1](b), label)
        return functional.cross_entropy(self.c(b), label) + 0.3 * sides


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, c: int, width: int, stride: int) -> None:
        super().__init__()
        relu, out = nn.ReLU(inplace=True), 4 * width
        self.branch = nn.Sequential(
            *(nn.Conv2d(c, width, 1, stride, bias=False), nn.BatchNorm2d(width), relu),
            *(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), relu),
            *(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        plain = stride == 1 and c == out
        shortcut = (nn.Conv2d(c, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity() if plain else nn.Sequential(*shortcut)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Their sum, rectified."""
        return functional.relu(self.branch(x) + self.shortcut(x), inplace=True)


class ResNet50(nn.Module):
    """Strides in the first 1×1 convolutions, as in the Caffe original."""

    def __init__(self) -> None:
        super().__init__()
        head = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        blocks: list[nn.Module] = []
        channels = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for at in range(count):
                blocks.append(Bottleneck(channels, width, stride if at == 0 else 1))
                channels = 4 * width
        tail = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
        self.body = nn.Sequential(*head, nn.MaxPool2d(3, 2, ceil_mode=True), *blocks, *tail)

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return functional.cross_entropy(self.body(x), label)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], int]] = {
    "lenet": (LeNet, (1, 28, 28), 64),
    "caffenet": (CaffeNet, (3, 227, 227), 8),
    "googlenet": (GoogLeNet, (3, 224, 224), 4),
    "resnet50": (ResNet50, (3, 224, 224), 4),
}
"""Example → peer, shape of an image, batch on a CPU (a GPU takes eight times as many)."""


def built(name: str, shape: tuple[int, ...], device: torch.device) -> Net:
    """The example's TRAIN net."""
    path = EXAMPLES / name / f"{name}_train_test.prototxt"
    net = upgrade.upgrade_net(text.parse(schema.NetParameter, path.read_text(), str(path)))
    net = graph.filter_net(net, schema.NetState(phase=schema.TRAIN))
    shapes = {
        top: shape if at == 0 else shape[:1] for d in graph.data_layers(net) for at, top in enumerate(d.layer.top)
    }
    return Net(graph.replace_data(net, shapes), schema.TRAIN, device, Stream(1))


def compare(name: str, passes: int, device: torch.device, batch: int) -> dict[str, float]:
    """Median seconds of both, taken in turn after a warm-up."""
    make, image, small = NETS[name]
    shape = (batch or small * (8 if device.type == "cuda" else 1), *image)
    x, label = torch.randn(shape, device=device), torch.randint(0, 10, shape[:1], device=device)
    net, peer = built(name, shape, device), make().to(device)

    def ours() -> None:
        for parameter in net.learnable:
            parameter.clear()
        net.forward({"data": x, "label": label})
        net.backward()

    def theirs() -> None:
        peer.zero_grad(set_to_none=True)
        peer(x, label).backward()

    runs: tuple[Callable[[], None], ...] = (ours, theirs)
    times: list[list[float]] = [[], []]
    for at in range(passes + 2):
        for run, seconds in zip(runs, times):
            elapsed = _seconds(run, device)
            if at > 1:
                seconds.append(elapsed)
    own, other = (statistics.median(seconds) for seconds in times)
    ratio = statistics.median(b / a for a, b in zip(*times))
    return {"batch": shape[0], "engine_s": own, "pytorch_s": other, "speed_ratio": ratio}


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="*", default=list(NETS))
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    found = {n: compare(n, given.passes, torch.device(given.device), given.batch) for n in given.nets}
    print(json.dumps({"benchmark": "torch_nets", "torch": torch.__version__, "device": given.device, "nets": found}))


if __name__ == "__main__":
    main()
