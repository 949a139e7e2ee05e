"""Nets of the torch engine: errors, sharing, readiness, dynamic shapes, Python layers, files."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch engine's tests need torch: run them in a Python that has it")

from unit.torch_engine.torch_nets import net, pass_through, values, whole  # noqa: E402

from caffe_on_grid.engine.torch.layers import LAYERS  # noqa: E402
from caffe_on_grid.engine.torch.layers_base import FLT_MAX  # noqa: E402
from caffe_on_grid.errors import ConfigError, DataError  # noqa: E402
from caffe_on_grid.proto import schema  # noqa: E402

pytestmark = pytest.mark.torch

DATA = 'layer { name: "in" type: "Input" top: "x" top: "t" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }\n'


def ip(name: str, bottom: str, top: str, more: str = "", outputs: int = 3) -> str:
    filled = 'weight_filler { type: "xavier" }'
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top}" {more} '
        f"inner_product_param {{ num_output: {outputs} {filled} }} }}\n"
    )


LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "loss" }\n'

REFUSED = {
    "unknown bottom": (ip("a", "z", "y"), r"unknown bottom blob 'z' \(layer 'a', bottom index 0\)"),
    "top twice": (ip("a", "x", "y") + ip("b", "x", "y"), "top blob 'y' produced by multiple sources"),
    "near type": (
        'layer { name: "a" type: "Relu" bottom: "x" top: "y" }',
        "unknown layer type 'Relu': did you mean ReLU",
    ),
    "fork's type": ('layer { name: "a" type: "MultiBoxLoss" bottom: "x" top: "y" }', "of SSD Caffe"),
    "data type": ('layer { name: "a" type: "HDF5Data" top: "y" }', "reads data itself"),
    "arity": (
        'layer { name: "a" type: "Eltwise" bottom: "x" top: "y" }',
        r"layer 'a' \(Eltwise\): takes at least 2 bottom",
    ),
    "shapes": (
        ip("a", "x", "y", outputs=2) + 'layer { name: "e" type: "Eltwise" bottom: "x" bottom: "y" top: "z" }',
        r"layer 'e' \(Eltwise\): bottom\[1\] 'y' has shape \(4, 2\), bottom\[0\] 'x_in_0_split_1' \(4, 3\)",
    ),
    "loss weights": (ip("a", "x", "y", "loss_weight: 1 loss_weight: 2"), "once per top blob"),
    "propagate_down": (ip("a", "x", "y", "propagate_down: true propagate_down: true"), "either 0 or bottom_size times"),
    "params": (ip("a", "x", "y", "param {} param {} param {}"), "too many params specified: 3 for 2"),
    "shared shape": (
        ip("a", "x", "y", 'param { name: "w" }') + ip("b", "x", "z", 'param { name: "w" }', outputs=2),
        "cannot share param 'w' owned by layer 'a'; shape mismatch",
    ),
    "shared rate": (
        ip("a", "x", "y", 'param { name: "w" lr_mult: 1 }') + ip("b", "x", "z", 'param { name: "w" lr_mult: 2 }'),
        "shared param 'w' has mismatched lr_mult",
    ),
    "batch norm": (
        'layer { name: "b" type: "BatchNorm" bottom: "x" top: "y" param { lr_mult: 1 } }',
        "cannot configure batch normalization statistics",
    ),
    "axis": (
        'layer { name: "s" type: "Softmax" bottom: "x" top: "y" softmax_param { axis: 2 } }',
        "axis 2 out of range",
    ),
    "dropout": (
        'layer { name: "d" type: "Dropout" bottom: "x" top: "y" dropout_param { dropout_ratio: 1 } }',
        "ratio 1 is",
    ),
    "filler": (ip("a", "x", "y").replace("xavier", "xavir"), "unknown filler type 'xavir'"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why: str) -> None:
    layers, words = REFUSED[why]
    with pytest.raises(ConfigError, match=words):
        whole(DATA + layers)


def test_labels_out_of_range() -> None:
    made = whole(DATA + ip("a", "x", "y") + LOSS)
    made.forward({"x": values(4, 3), "t": np.float32([0, 1, 2, 2.9])})
    with pytest.raises(
        DataError, match=r"layer 'loss' \(SoftmaxWithLoss\): label out of range 0..2: value 3 at index 1"
    ):
        made.forward({"t": np.float32([0, 3, 2, 1])})
    with pytest.raises(DataError, match="value -1"):
        made.forward({"t": np.float32([0, -1, 2, 1])})


def test_gradient_to_labels_is_refused() -> None:
    loss = 'layer { name: "l" type: "SigmoidCrossEntropyLoss" bottom: "x" bottom: "y" top: "l" }'
    made = whole(DATA + ip("a", "x", "y") + loss)
    made.forward({"x": values(4, 3)})
    with pytest.raises(ConfigError, match=r"layer 'l' \(SigmoidCrossEntropyLoss\): cannot backpropagate to bottom 'y'"):
        made.backward()


def test_input_of_another_batch() -> None:
    made = whole(DATA + ip("a", "x", "y") + LOSS)
    made.forward({"x": values(7, 3), "t": np.zeros(7, np.float32)})
    assert made.shape("y") == (7, 3) == tuple(made.blob("y").shape)
    with pytest.raises(ConfigError, match="input size incompatible"):
        made.forward({"x": values(4, 2), "t": np.zeros(4, np.float32)})
    with pytest.raises(ConfigError, match="no input 'q'"):
        made.forward({"q": values(1)})


def test_test_net_shares() -> None:
    train = whole(DATA + ip("a", "x", "y") + LOSS)
    test = whole(DATA + ip("a", "x", "y") + LOSS, schema.TEST, share=train)
    assert test.layers[1].params[0] is train.layers[1].params[0]
    given = {"x": values(4, 3), "t": np.zeros(4, np.float32)}
    assert float(test.forward(given)) == float(train.forward(given))
    assert not test.blob("y").requires_grad
    assert (train.outputs, test.outputs) == (["loss"], ["loss"])


def test_ready_in_order() -> None:
    """Each layer's range once, from the last to the first; its gradients are final by then."""
    made = whole(
        DATA
        + ip("a", "x", "a", 'param { name: "w" }')
        + ip("b", "a", "b", 'param { name: "w" }')
        + ip("c", "b", "y")
        + LOSS
    )
    given = {"x": values(4, 3), "t": np.float32([0, 1, 2, 0])}
    made.forward(given)
    made.backward()
    wanted = [p.diff.clone() for p in made.learnable]
    for p in made.learnable:
        p.diff.zero_()
    calls: list[tuple[int, int]] = []

    def ready(first: int, last: int) -> None:
        calls.append((first, last))
        assert all(torch.equal(made.learnable[i].diff, wanted[i]) for i in range(first, last + 1))

    made.on_ready = ready
    made.forward(given)
    made.backward()
    assert calls == [(3, 4), (2, 2), (0, 1)]


def test_gradients_accumulate_but_a_parameter_layer_overwrites() -> None:
    layers = (
        'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 3 } } }\n'
        'layer { name: "s" type: "Bias" bottom: "x" bottom: "p" top: "q" }\n' + ip("a", "q", "y") + LOSS
    )
    made = whole(DATA + layers)
    given = {"x": values(4, 3), "t": np.float32([0, 1, 2, 0])}
    sums = []
    for _ in range(2):
        made.forward(given)
        made.backward()
        sums.append([p.diff.clone() for p in made.learnable])
    assert torch.equal(sums[0][0], sums[1][0])
    torch.testing.assert_close(sums[1][1], 2 * sums[0][1])


def test_filter_may_select_nothing() -> None:
    layers = (
        'layer { name: "f" type: "Filter" bottom: "x" bottom: "t" top: "f" }\n'
        + ip("a", "f", "y")
        + 'layer { name: "r" type: "Reduction" bottom: "y" top: "r" loss_weight: 1 }'
    )
    made = net(layers, x=(4, 3), t=(4,))
    loss = made.forward({"x": values(4, 3), "t": np.zeros(4, np.float32)})
    assert float(loss) == 0 and tuple(made.blob("y").shape) == (0, 3)
    made.backward()
    assert not made.diff("x").any()
    made.forward({"t": np.float32([0, 1, 0, 1])})
    assert tuple(made.blob("y").shape) == (2, 3)


def test_pooling_window_outside_the_image() -> None:
    """4×4, kernel 1, stride 2, no pad: Caffe's 3×3 with an edge outside; its value, and no gradient."""
    text = (
        'layer { name: "p" type: "Pooling" bottom: "x" top: "y" pooling_param { pool: %s kernel_size: 1 stride: 2 } }'
    )
    made = net(text.replace("%s", "MAX"), x=(1, 1, 4, 4))
    found = pass_through(made, "y", {"x": values(1, 1, 4, 4)})
    assert found.shape == (1, 1, 3, 3)
    assert (found[0, 0, 2] == np.float32(-FLT_MAX)).all()
    assert (found[0, 0, :2, :2] == values(1, 1, 4, 4)[0, 0, ::2, ::2]).all()
    assert float(made.diff("x").sum()) == 4
    made = net(text.replace("%s", "AVE"), x=(1, 1, 4, 4))
    made.forward({"x": values(1, 1, 4, 4)})
    assert np.isnan(made.blob("y").detach().numpy()[0, 0, 2]).all()


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
def test_four_spatial_axes(kind: str) -> None:
    """A kernel of 1 on the last axis makes it a batch axis: compared with the same over three axes."""
    shared = (
        "num_output: 4 group: 2 kernel_size: 2 kernel_size: 2 kernel_size: 3 %s stride: 2 stride: 1 stride: 1 %s pad: 1"
    )
    more = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
    made = [
        net(
            f'layer {{ name: "c" type: "{kind}" bottom: "x" top: "y" '
            f"convolution_param {{ {shared % last} {tail} {more} }} }}",
            x=shape,
        )
        for last, tail, shape in (
            (("kernel_size: 1", "stride: 1"), "pad: 1 pad: 1 pad: 0", (2, 4, 4, 5, 6, 3)),
            (("", ""), "pad: 1 pad: 1", (6, 4, 4, 5, 6)),
        )
    ]
    x = values(2, 4, 4, 5, 6, 3)
    flat = np.ascontiguousarray(x.transpose(0, 5, 1, 2, 3, 4)).reshape(6, 4, 4, 5, 6)
    for one, other in zip(made[0].layers[1].params, made[1].layers[1].params):
        one.assign(other.data)
    tops = [pass_through(made[0], "y", {"x": x}), pass_through(made[1], "y", {"x": flat})]
    np.testing.assert_allclose(tops[0], np.moveaxis(tops[1].reshape(2, 3, *tops[1].shape[1:]), 1, -1), atol=1e-4)
    for one, other in zip(made[0].layers[1].params, made[1].layers[1].params):
        np.testing.assert_allclose(one.diff.reshape(-1), other.diff.reshape(-1), rtol=1e-3, atol=1e-3)


def test_global_convolution_without_spatial_axes() -> None:
    made = net(
        'layer { name: "c" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 2 axis: 2 '
        'weight_filler { type: "gaussian" } } }',
        x=(3, 4, 5),
    )
    x, weight = values(3, 4, 5), made.layers[1].params[0].data.numpy()
    np.testing.assert_allclose(pass_through(made, "y", {"x": x}), x @ weight.T, rtol=1e-4, atol=1e-5)


def test_batch_norm_of_single_values() -> None:
    made = net('layer { name: "b" type: "BatchNorm" bottom: "x" top: "y" }', x=(1, 3))
    x = values(1, 3) * 100
    assert not pass_through(made, "y", {"x": x}, values(1, 3)).any()  # rounding would be times 1/√eps = 316
    assert not made.diff("x").any()
    sums = [p.data.numpy() for p in made.layers[1].params]
    np.testing.assert_array_equal(sums[0], x[0])
    assert not sums[1].any() and sums[2] == 1


def test_batch_norm_of_single_values_fused_with_scale() -> None:
    layers = (
        'layer { name: "b" type: "BatchNorm" bottom: "x" top: "y" }\n'
        'layer { name: "s" type: "Scale" bottom: "y" top: "y" scale_param { bias_term: true filler { value: 2 } '
        "bias_filler { value: 3 } } }\n"
        'layer { name: "l" type: "Reduction" bottom: "y" top: "l" loss_weight: 1 reduction_param { operation: SUMSQ } }'
    )
    made = net(layers, x=(1, 2, 1, 1))
    made.keep_diffs = False
    assert made.layers[2].absorbed
    assert float(made.forward({"x": values(1, 2, 1, 1) * 100})) == 18
    made.backward()
    assert [p.diff.tolist() for p in made.layers[2].params] == [[0, 0], [6, 6]]


def test_clip_on_its_bounds() -> None:
    """The gradient passes on both; bounds in the wrong order give the lower one, and no gradient."""
    text = 'layer { name: "k" type: "%s" bottom: "x" top: "y" %s }'
    x, diff = np.float32([-2, -1, -0.5, 0, 1, 6, 7]), np.float32([1, 2, 3, 4, 5, 6, 7])
    for kind, more, wanted, passed in (
        ("Clip", "clip_param { min: -1 max: 1 }", [-1, -1, -0.5, 0, 1, 1, 1], [0, 2, 3, 4, 5, 0, 0]),
        ("Clip", "clip_param { min: 0 max: 6 }", [0, 0, 0, 0, 1, 6, 6], [0, 0, 0, 4, 5, 6, 0]),
        ("Clip", "clip_param { min: 1 max: -1 }", [1] * 7, [0] * 7),
        ("ReLU6", "", [0, 0, 0, 0, 1, 6, 6], [0, 0, 0, 0, 5, 0, 0]),
    ):
        made = net(text % (kind, more), x=(7,))
        assert pass_through(made, "y", {"x": x}, diff).tolist() == wanted
        assert made.diff("x").tolist() == passed, (kind, more)


def test_log_of_a_constant() -> None:
    """Scale 0: Caffe's gradient is 0 even where the logarithm is infinite."""
    made = net('layer { name: "l" type: "Log" bottom: "x" top: "y" log_param { scale: 0 } }', x=(3,))
    assert np.isneginf(pass_through(made, "y", {"x": values(3)})).all()
    assert made.diff("x").tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3), (4,), ()])
def test_mvn_has_a_top_of_four_axes(shape: tuple[int, ...]) -> None:
    made = net('layer { name: "m" type: "MVN" bottom: "x" top: "y" mvn_param { across_channels: true } }', x=shape)
    x, full = np.reshape(values(24, seed=3)[: math.prod(shape)], shape), (*shape, 1, 1, 1, 1)[:4]
    found = pass_through(made, "y", {"x": x})
    assert found.shape == full == made.shape("y")
    if len(shape) > 1:
        rows = x.reshape(shape[0], -1)
        wanted = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
        np.testing.assert_allclose(found.reshape(rows.shape), wanted, atol=1e-5)
    assert made.diff("x").shape == shape


def test_mvn_of_five_axes() -> None:
    with pytest.raises(ConfigError, match=r"layer 'm' \(MVN\): input must have at most 4 axes"):
        net('layer { name: "m" type: "MVN" bottom: "x" top: "y" }', x=(1, 2, 3, 4, 5))


def test_batch_norm_fused_with_scale() -> None:
    """Fused and apart give the same, to rounding."""
    layers = (
        'layer { name: "c" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 4 kernel_size: 2 '
        'weight_filler { type: "gaussian" } } }\nlayer { name: "b" type: "BatchNorm" bottom: "y" top: "y" }\n'
        'layer { name: "s" type: "Scale" bottom: "y" top: "y" scale_param { bias_term: true filler { value: 2 } } }\n'
        'layer { name: "r" type: "ReLU" bottom: "y" top: "y" }\n'
        'layer { name: "l" type: "Reduction" bottom: "y" top: "l" loss_weight: 1 reduction_param { operation: SUMSQ } }'
    )
    found = []
    for keep in (False, True):
        made = net(layers, x=(3, 2, 5, 5))
        made.keep_diffs = keep
        loss = made.forward({"x": values(3, 2, 5, 5)})
        made.backward()
        found.append([loss, *(p.diff for p in made.learnable), *(p.data for p in made.learnable)])
        assert made.layers[3].absorbed is not keep
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_warnings() -> None:
    made = whole(
        DATA
        + ip("a", "x", "y")
        + 'layer { name: "k" type: "Clip" bottom: "y" top: "y" clip_param { min: 0 max: 1 } }'
        + LOSS
    )
    assert made.warnings == [
        "layer 'k': real Caffe differs here because Clip in place lets the gradient pass everywhere"
    ]
    made = whole(
        DATA + ip("a", "x", "y") + 'layer { name: "g" type: "Sigmoid" bottom: "y" top: "s" }'
        'layer { name: "d" type: "Dropout" bottom: "s" top: "s" }' + LOSS.replace('"y"', '"s"')
    )
    assert len(made.warnings) == 1 and "layer 'g'" in made.warnings[0]


def test_warnings_of_what_is_not_reproduced() -> None:
    """Also in strict mode; each is about a layer in place."""
    for kind, more in (
        ("Convolution", "convolution_param { num_output: 2 kernel_size: 1 }"),
        ("Pooling", "pooling_param { kernel_size: 3 pad: 1 }"),
        ("Im2col", "convolution_param { kernel_size: 1 }"),
        ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }"),
    ):
        for top, count in (("x", 1), ("y", 0)):
            made = net(f'layer {{ name: "l" type: "{kind}" bottom: "x" top: "{top}" {more} }}', x=(1, 2, 4, 4))
            assert [w.partition(":")[0] for w in made.differences] == ["layer 'l'"] * count, (kind, top)
    made = net('layer { name: "e" type: "Eltwise" bottom: "x" bottom: "z" top: "x" }', x=(2,), z=(2,))
    assert made.differences == [
        "layer 'e': real Caffe's numbers are others, and wrong, because Eltwise in place overwrites what it reads: "
        "give its top another name"
    ]
    assert pass_through(made, "x", {"x": np.float32([1, 2]), "z": np.float32([3, 4])}).tolist() == [4, 6]


@pytest.mark.parametrize(("kind", "blobs"), [("LSTM", 3), ("RNN", 5)])
def test_recurrent_layers_that_share_weights(kind: str, blobs: int) -> None:
    """By default both use the same weights in every step; a warning says so, unless there is one step."""
    names = " ".join(f'param {{ name: "p{i}" }}' for i in range(blobs))
    filler = 'weight_filler { type: "gaussian" std: 1 }'
    layers = "".join(
        f'layer {{ name: "{n}" type: "{kind}" bottom: "x" bottom: "c" top: "{n}" {names} '
        f"recurrent_param {{ num_output: 3 {filler} }} }}\n"
        for n in "mn"
    )
    made = net(layers, x=(4, 2, 3), c=(4, 2))
    made.forward({"x": values(4, 2, 3), "c": np.ones((4, 2), np.float32)})
    assert torch.equal(made.blob("m"), made.blob("n"))
    assert [w.partition(":")[0] for w in made.warnings] == ["layer 'n'"]
    assert not net(layers, x=(1, 2, 3), c=(1, 2)).warnings
    assert not net(layers, schema.TEST, x=(4, 2, 3), c=(4, 2)).warnings


def test_power_at_a_base_of_zero() -> None:
    """The right gradient by default; Caffe's, NaN, in strict mode."""
    head = 'force_backward: true layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } } '
    for power, wanted in ((3, [0, 12]), (0.5, [np.inf, 0.25 * math.sqrt(2)])):
        text = head + f'layer {{ name: "p" type: "Power" bottom: "x" top: "y" power_param {{ power: {power} }} }}'
        for strict, first in ((False, wanted[0]), (True, np.nan)):
            made = whole(text, strict=strict)
            pass_through(made, "y", {"x": np.float32([0, 2])})
            np.testing.assert_allclose(made.diff("x").numpy(), [first, wanted[1]], rtol=1e-6)


PYTHON = '''
import caffe
import numpy as np

class Scaled(caffe.Layer):
    """y = w * x, with a blob of its own."""

    def setup(self, bottom, top):
        self.factor = float(self.param_str)
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = self.factor
        assert self.phase == caffe.TRAIN

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
        assert bottom[0].num * bottom[0].channels == bottom[0].count

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * self.blobs[0].data[0]

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[0] += (top[0].diff * bottom[0].data).sum()
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * self.blobs[0].data[0]

class Loss(caffe.Layer):
    """The gradient is kept from the forward pass."""

    def setup(self, bottom, top):
        assert len(bottom) == 2

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        bottom[0].diff[...] = bottom[0].data - bottom[1].data
        top[0].data[0] = (bottom[0].diff ** 2).sum() / 2

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] *= top[0].diff[0]
'''


def test_python_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user_layers.py").write_text(PYTHON)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = whole(
        'layer { name: "in" type: "Input" top: "x" top: "t" input_param { shape { dim: 4 dim: 3 } } }\n'
        + ip("a", "x", "a")
        + 'layer { name: "s" type: "Python" bottom: "a" top: "y" python_param { module: "user_layers" layer: "Scaled" '
        'param_str: "2.5" } }\n'
        'layer { name: "l" type: "Python" bottom: "y" bottom: "t" top: "l" loss_weight: 3 python_param { '
        'module: "user_layers" layer: "Loss" } }\n'
    )
    x, t = values(4, 3), values(4, 3, seed=1)
    loss = made.forward({"x": x, "t": t})
    made.backward()
    a = x @ made.learnable[0].data.numpy().T
    d = 2.5 * a - t
    np.testing.assert_allclose(float(loss), 1.5 * (d**2).sum(), rtol=1e-5)
    np.testing.assert_allclose(made.learnable[2].diff, [3 * (d * a).sum()], rtol=1e-5)
    np.testing.assert_allclose(made.learnable[0].diff, 3 * 2.5 * d.T @ x, rtol=1e-4, atol=1e-5)
    made.forward({"x": x[:2], "t": t[:2]})
    assert tuple(made.blob("y").shape) == (2, 3)
    with pytest.raises(AttributeError, match="offers Python layers only"):
        sys.modules["caffe"].set_mode_gpu  # noqa: B018
    for module, words in (("user_layers", "has no class 'None_'"), ("no_such_module", "cannot be imported")):
        with pytest.raises(ConfigError, match=words):
            whole(
                DATA
                + 'layer { name: "p" type: "Python" bottom: "x" top: "y" '
                + f'python_param {{ module: "{module}" layer: "None_" }} }}'
            )


def test_hdf5_output_appends(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "out.h5"
    made = net(
        f'layer {{ name: "o" type: "HDF5Output" bottom: "x" bottom: "t" hdf5_output_param {{ file_name: "{path}" }} }}',
        x=(4, 3),
        t=(4,),
    )
    parts = [values(4, 3, seed=at) for at in range(2)]
    for part in parts:
        made.forward({"x": part, "t": part[:, 0]})
    with h5py.File(path, "r") as file:
        np.testing.assert_array_equal(file["data"][:, :, 0, 0], np.concatenate(parts))
        assert file["label"].shape == (8, 1, 1, 1)


def test_dropout_masks() -> None:
    """Caffe's, of the stream: seed 1 of the net's, drawn in blob order."""
    from caffe_on_grid.engine.torch.random import Stream

    made = net(
        'layer { name: "d" type: "Dropout" bottom: "x" top: "y" dropout_param { dropout_ratio: 0.25 } }', x=(50,)
    )
    made.forward({"x": np.ones(50, np.float32)})
    wanted = (Stream(1).raw(50) <= 0.75 * (2**32 - 1)) / 0.75
    np.testing.assert_allclose(made.blob("y").detach(), wanted.astype(np.float32))


def test_every_type_of_caffe_is_here(root: Any) -> None:
    """The 61 types of the reference, the data layers that sources replace aside."""
    types = set(
        [
            "AbsVal",
            "Accuracy",
            "ArgMax",
            "BatchNorm",
            "BatchReindex",
            "Bias",
            "BNLL",
            "Clip",
            "Concat",
            "ContrastiveLoss",
            "Convolution",
            "Crop",
            "Deconvolution",
            "Dropout",
            "DummyData",
            "ELU",
            "Eltwise",
            "Embed",
            "EuclideanLoss",
            "Exp",
            "Filter",
            "Flatten",
            "HDF5Output",
            "HingeLoss",
            "Im2col",
            "InfogainLoss",
            "InnerProduct",
            "Input",
            "Log",
            "LRN",
            "LSTM",
            "LSTMUnit",
            "MultinomialLogisticLoss",
            "MVN",
            "Parameter",
            "Pooling",
            "Power",
            "PReLU",
            "Python",
            "Reduction",
            "ReLU",
            "Reshape",
            "RNN",
            "Scale",
            "Sigmoid",
            "SigmoidCrossEntropyLoss",
            "Silence",
            "Slice",
            "Softmax",
            "SoftmaxWithLoss",
            "Split",
            "SPP",
            "Swish",
            "TanH",
            "Threshold",
            "Tile",
        ]
    )
    assert types <= set(LAYERS) and len(types) == 56


EMPTY = {
    "LRN": "",
    "MVN": "",
    "Softmax": "",
    "Reduction": "",
    "ArgMax": "argmax_param { top_k: 2 }",
    "BatchNorm": "",
    "Pooling": "pooling_param { kernel_size: 2 }",
    "Convolution": "convolution_param { num_output: 2 kernel_size: 2 }",
    "InnerProduct": "inner_product_param { num_output: 2 }",
    "Flatten": "",
    "Im2col": "convolution_param { kernel_size: 2 }",
    "PReLU": "",
}


@pytest.mark.parametrize("kind", EMPTY)
def test_a_batch_of_none(kind: str) -> None:
    """What a Filter that selects nothing hands on."""
    made = net(f'layer {{ name: "l" type: "{kind}" bottom: "x" top: "y" {EMPTY[kind]} }}', x=(2, 3, 4, 5))
    made.forward({"x": np.zeros((0, 3, 4, 5), np.float32)})
    assert tuple(made.blob("y").shape) == made.shape("y")
    made.backward({"y": np.zeros(made.shape("y"), np.float32)})
    diff = made.diff("x")
    assert diff is None or tuple(diff.shape) == (0, 3, 4, 5)
