"""The forks' layers against their formulas, written out in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch engine's tests need torch: run them in a Python that has it")

from unit.torch_engine.torch_nets import net, pass_through, values  # noqa: E402

from caffe_on_grid.errors import ConfigError, DataError  # noqa: E402

pytestmark = pytest.mark.torch


def close(found: object, wanted: object) -> None:
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def one(kind: str, bottoms: str, param: str = "") -> str:
    ends = " ".join(f'bottom: "{b}"' for b in bottoms.split())
    return f'layer {{ name: "l" type: "{kind}" {ends} top: "y" {param} }}'


def test_permute() -> None:
    made = net(one("Permute", "x", "permute_param { order: 0 order: 2 order: 3 }"), x=(2, 3, 4, 5))
    x, dy = values(2, 3, 4, 5), values(2, 4, 5, 3, seed=1)
    close(pass_through(made, "y", {"x": x}, dy), x.transpose(0, 2, 3, 1))
    close(made.diff("x"), dy.transpose(0, 3, 1, 2))
    with pytest.raises(ConfigError, match="duplicate orders"):
        net(one("Permute", "x", "permute_param { order: 1 order: 1 }"), x=(2, 3))


@pytest.mark.parametrize(("across", "shared"), [("true", "true"), ("false", "false")])
def test_normalize(across: str, shared: str) -> None:
    param = f"norm_param {{ across_spatial: {across} channel_shared: {shared} eps: 0.01 scale_filler {{ value: 20 }} }}"
    made = net(one("Normalize", "x", param), x=(2, 3, 4, 5))
    x = values(2, 3, 4, 5)
    norm = np.sqrt((x**2).sum((1, 2, 3) if across == "true" else 1, keepdims=True) + 0.01)
    close(pass_through(made, "y", {"x": x}), 20 * x / norm)
    assert made.layers[-1].params[0].shape == ((1,) if shared == "true" else (3,))
    close(made.layers[-1].params[0].diff.sum(), (x / norm).sum())


def test_axpy() -> None:
    made = net(one("Axpy", "a x z"), a=(2, 3, 1, 1), x=(2, 3, 4, 5), z=(2, 3, 4, 5))
    a, x, z = values(2, 3, 1, 1), values(2, 3, 4, 5, seed=1), values(2, 3, 4, 5, seed=2)
    close(pass_through(made, "y", {"a": a, "x": x, "z": z}), a * x + z)
    close(made.diff("a"), x.sum((2, 3), keepdims=True))
    close(made.diff("x"), np.broadcast_to(a, x.shape))


def test_relu6() -> None:
    made = net(one("ReLU6", "x"), x=(6,))
    x = np.float32([-1, 0, 3, 6, 7, 5])
    close(pass_through(made, "y", {"x": x}), np.clip(x, 0, 6))
    close(made.diff("x"), [0, 0, 1, 0, 0, 1])


@pytest.mark.parametrize("kind", ["DepthwiseConvolution", "ConvolutionDepthwise"])
def test_depthwise(kind: str) -> None:
    param = 'convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } }'
    made = net(one(kind, "x", param), x=(2, 3, 5, 6))
    x, weight = values(2, 3, 5, 6), made.layers[-1].params[0].data.numpy()
    assert weight.shape == (3, 1, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    close(pass_through(made, "y", {"x": x}), np.einsum("nchwij,cij->nchw", windows, weight[:, 0]))


def test_shuffle_channel() -> None:
    made = net(one("ShuffleChannel", "x", "shuffle_channel_param { group: 3 }"), x=(1, 6, 1, 1))
    found = pass_through(made, "y", {"x": np.arange(6, dtype=np.float32).reshape(1, 6, 1, 1)})
    assert found.ravel().tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize(
    ("param", "size"),
    [
        ("height: 7 width: 9", (7, 9)),
        ("zoom_factor: 2", (7, 9)),
        ("shrink_factor: 2", (2, 3)),
        ("zoom_factor: 3 shrink_factor: 2", (4, 7)),
        ("height: 5 width: 4 pad_beg: 0 pad_end: -1", (5, 4)),
    ],
)
def test_interp(param: str, size: tuple[int, int]) -> None:
    """Bilinear with the corners of both grids on each other."""
    made = net(one("Interp", "x", f"interp_param {{ {param} }}"), x=(1, 2, 4, 5))
    x = values(1, 2, 4, 5)
    image = x[:, :, :3, :4] if "pad_end" in param else x
    rows, columns = (_weights(n, m) for n, m in zip(image.shape[2:], size))
    close(pass_through(made, "y", {"x": x}), np.einsum("ah,nchw,bw->ncab", rows, image, columns))


def _weights(n: int, m: int) -> np.ndarray:
    at = np.arange(m) * ((n - 1) / (m - 1))
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(n)[None]))


def test_upsample() -> None:
    made = net(one("Upsample", "x m", "upsample_param { scale: 2 }"), x=(1, 1, 1, 2), m=(1, 1, 1, 2))
    x, mask = np.float32([[[[5, 7]]]]), np.float32([[[[4, 3]]]])
    found = pass_through(made, "y", {"x": x, "m": mask}, np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4))
    assert found.ravel().tolist() == [0, 0, 0, 7, 5, 0, 0, 0]
    assert made.diff("x").flatten().tolist() == [4, 3]
    with pytest.raises(DataError, match=r"mask out of range 0\.\.7"):
        made.forward({"m": mask + 5})


@pytest.mark.parametrize("reverse", [False, True])
def test_reorg(reverse: bool) -> None:
    """darknet's loop, index by index."""
    c, h, w, s = 8, 4, 6, 2
    made = net(one("Reorg", "x", f"reorg_param {{ stride: {s} reverse: {str(reverse).lower()} }}"), x=(1, c, h, w))
    x = np.arange(c * h * w, dtype=np.float32)
    wanted = np.zeros_like(x)
    for k, j, i in np.ndindex(c, h, w):
        offset, c2 = divmod(k, c // (s * s))
        at = i + w * (j + h * k)
        far = i * s + offset % s + w * s * (j * s + offset // s + h * s * c2)
        wanted[far if reverse else at] = x[at if reverse else far]
    assert pass_through(made, "y", {"x": x.reshape(1, c, h, w)}).ravel().tolist() == wanted.tolist()


def test_prior_box() -> None:
    param = "min_size: 4 max_size: 9 aspect_ratio: 2 aspect_ratio: 2"
    param += " variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
    made = net(one("PriorBox", "x d", f"prior_box_param {{ {param} clip: true }}"), x=(1, 3, 2, 3), d=(1, 3, 20, 30))
    made.forward({})
    found = made.blob("y").numpy()
    sizes = [(4, 4), (6, 6), (4 * math.sqrt(2), 4 / math.sqrt(2)), (4 / math.sqrt(2), 4 * math.sqrt(2))]
    wanted = [
        side
        for row in range(2)
        for column in range(3)
        for w, h in sizes
        for side in (
            ((column + 0.5) * 10 - w / 2) / 30,
            ((row + 0.5) * 10 - h / 2) / 20,
            ((column + 0.5) * 10 + w / 2) / 30,
            ((row + 0.5) * 10 + h / 2) / 20,
        )
    ]
    assert found.shape == (1, 2, 2 * 3 * 4 * 4)
    close(found[0, 0], np.clip(wanted, 0, 1))
    close(found[0, 1], np.float32([0.1, 0.1, 0.2, 0.2] * 24))


def test_smooth_l1() -> None:
    made = net(
        one("SmoothL1Loss", "a b i o", "smooth_l1_loss_param { sigma: 2 } loss_weight: 3"),
        **{name: (4, 5) for name in "abio"},
    )
    given = {name: values(4, 5, seed=at) for at, name in enumerate("abio")}
    loss = made.forward(given)
    d = given["i"] * (given["a"] - given["b"])
    items = given["o"] * np.where(np.abs(d) < 0.25, 2 * d * d, np.abs(d) - 0.125)
    close(float(loss), 3 * items.sum() / 4)
    made.backward()
    slope = np.where(np.abs(d) < 0.25, 4 * d, np.sign(d)) * given["i"] * given["o"] * 3 / 4
    close(made.diff("a"), slope)
    close(made.diff("b"), -slope)


def test_roi_pooling() -> None:
    """The published loop; a region beyond the image, an empty bin, regions of both samples."""
    made = net(
        one("ROIPooling", "x r", "roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 }"),
        x=(2, 2, 5, 6),
        r=(3, 5),
    )
    x = values(2, 2, 5, 6)
    regions = np.float32([[0, 0, 0, 9, 7], [1, 3, 2, 6, 6], [1, 9, 7, 30, 30]])
    found = pass_through(made, "y", {"x": x, "r": regions})
    wanted = np.zeros((3, 2, 2, 3), np.float32)
    for at, (n, *corner) in enumerate(regions):
        x1, y1, x2, y2 = (int(v * 0.5 + 0.5) for v in corner)
        height, width = max(y2 - y1 + 1, 1) / 2, max(x2 - x1 + 1, 1) / 3
        for i, j in np.ndindex(2, 3):
            rows = slice(min(math.floor(i * height) + y1, 5), min(math.ceil((i + 1) * height) + y1, 5))
            columns = slice(min(math.floor(j * width) + x1, 6), min(math.ceil((j + 1) * width) + x1, 6))
            piece = x[int(n), :, rows, columns].reshape(2, -1)
            wanted[at, :, i, j] = piece.max(1) if piece.size else 0
    close(found, wanted)
    assert float(made.diff("x").sum()) == np.count_nonzero(wanted)
