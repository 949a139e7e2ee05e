"""What the engine cannot build or run is refused in one line that names the layer, whichever way it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch engine's tests need torch: run them in a Python that has it")

from unit.torch_engine.torch_nets import net, values, whole  # noqa: E402

from caffe_on_grid.engine.torch import engine  # noqa: E402
from caffe_on_grid.errors import ConfigError  # noqa: E402
from caffe_on_grid.proto import schema, text, upgrade  # noqa: E402
from caffe_on_grid.worker import offline  # noqa: E402

pytestmark = pytest.mark.torch

PLANE, SEQUENCE = "x 1 3 9 9", "x 0 3 4 c 0 3"
CASES: tuple[tuple[str, str, str, str], ...] = (
    ("Convolution", PLANE, "convolution_param { num_output: 4 kernel_size: 3 group: 0 }", "group must be > 0"),
    ("Deconvolution", PLANE, "convolution_param { num_output: 4 kernel_size: 3 group: 0 }", "group must be > 0"),
    ("Convolution", PLANE, "convolution_param { num_output: 4 kernel_size: 3 dilation: 0 }", "dilation should be"),
    ("Convolution", PLANE, "convolution_param { num_output: 4 kernel_size: 4294967295 }", "at most 2147483647"),
    ("Convolution", PLANE, "convolution_param { num_output: 4 kernel_size: 3 pad: 4294967295 }", "at most 2147483647"),
    ("Tile", PLANE, "tile_param { tiles: 2147483647 }", "a blob holds at most"),
    ("InnerProduct", PLANE, "inner_product_param { num_output: 4000000000 }", "a blob holds at most"),
    ("ReLU", "x 100000 100000 100000", "", "a blob holds at most"),
    ("ReLU", "x -3 2", "", "no axis of -3x2 may be negative"),
    ("LSTM", SEQUENCE, "recurrent_param { num_output: 3 }", "its top 0x3x3 would hold no values"),
    ("Reorg", PLANE, "reorg_param { stride: 0 }", "stride must be > 0"),
    ("ShuffleChannel", PLANE, "shuffle_channel_param { group: 0 }", "group must be > 0"),
    ("Upsample", "x 1 3 4 4 m 1 3 4 4", "upsample_param { scale: 0 }", "scale must be > 0"),
    ("PriorBox", "x 1 3 4 4 m 1 3 4 4", "prior_box_param { min_size: 0 }", "min_size must be > 0, not 0"),
    (
        "InnerProduct",
        PLANE,
        'inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: nan } }',
        "filler 'gaussian': std is nan",
    ),
)


def message(kind: str, blobs: str, body: str) -> Any:
    """A net of Input layers (`blobs`: names, each with its dims) and the layer 'l'."""
    shapes: dict[str, list[str]] = {}
    for word in blobs.split():
        if word.isalpha():
            shapes[word] = []
        else:
            shapes[list(shapes)[-1]].append(f"dim: {word}")
    heads = "".join(
        f'layer {{ name: "{n}_in" type: "Input" top: "{n}" input_param {{ shape {{ {" ".join(d)} }} }} }}'
        for n, d in shapes.items()
    )
    bottoms = " ".join(f'bottom: "{name}"' for name in shapes)
    layer = f'layer {{ name: "l" type: "{kind}" {bottoms} top: "y" {body} }}'
    return upgrade.upgrade_net(text.parse(schema.NetParameter, heads + layer, "net"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[3]}")
def test_an_engine_refuses_in_words(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    kind, blobs, body, words = case
    with pytest.raises(ConfigError) as caught:
        engine.create(offline.plan(message(kind, blobs, body), "TRAIN", tmp_path)).time_layers(1, {})
    said = str(caught.value)
    assert words in said and "\n" not in said and ("layer 'l'" in said or "layer 'x_in'" in said)


@pytest.mark.parametrize("error", [MemoryError(), ZeroDivisionError("division by zero"), RuntimeError("a\nb")])
@pytest.mark.parametrize("method", ["setup", "reshape", "forward"])
def test_what_torch_raises_names_the_layer(error: Exception, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(engine.LAYERS["TanH"], method, fails)
    layer = 'layer { name: "l" type: "TanH" bottom: "x" top: "y" }'
    with pytest.raises(ConfigError, match=r"^layer 'l' \(TanH\): cannot be computed: (MemoryError|division|a)[^\n]*$"):
        net(layer, x=(2, 3)).forward({"x": values(2, 3)})


@pytest.mark.parametrize(("power", "shift", "wanted"), [(-1, 0, np.inf), (0.5, -1, np.nan), (0, 0, 1), (2, 3, 9)])
def test_a_constant_power_is_what_pow_gives(power: float, shift: float, wanted: float) -> None:
    body = f"power_param {{ power: {power} scale: 0 shift: {shift} }}"
    made = net(f'layer {{ name: "l" type: "Power" bottom: "x" top: "y" {body} }}', x=(2, 3))
    made.forward({"x": values(2, 3)})
    found = made.blob("y").detach().numpy()
    assert found.dtype == np.float32 and np.array_equal(found, np.full((2, 3), wanted, np.float32), equal_nan=True)
    made.backward({"y": np.ones((2, 3), np.float32)})
    diff = made.diff("x")
    assert diff is not None and not diff.numpy().any()


ONE, TWO = np.float32([[1, -2, 3], [4, 5, -6]]), np.float32([[0, 9, 3], [-1, 7, 2]])
TAKEN: tuple[tuple[str, str, dict[str, Any], Any], ...] = (
    ("Clip", "", {"x": ONE}, np.zeros((2, 3))),
    ("Eltwise", "eltwise_param { operation: MAX coeff: 2 coeff: 3 }", {"x": ONE, "z": TWO}, np.maximum(ONE, TWO)),
    ("Flatten", "flatten_param { axis: 1 end_axis: 0 }", {"x": ONE}, ONE.reshape(2, 1, 3)),
    ("Scale", "scale_param { axis: -4 }", {"x": ONE, "z": np.float32(3)}, ONE * 3),
    ("Bias", "bias_param { axis: -4 }", {"x": ONE, "z": np.float32(3)}, ONE + 3),
    ("ContrastiveLoss", "", {"x": ONE[0], "z": TWO[0], "f": np.float32([1, 1, 1])}, (1 + 121 + 0) / 6),
)


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case[0])
def test_odd_but_valid_layers_are_taken(case: tuple[str, str, dict[str, Any], Any], tmp_path: Path) -> None:
    kind, body, given, wanted = case
    blobs = " ".join(f"{name} {' '.join(map(str, value.shape))}" for name, value in given.items())
    made = engine.create(offline.plan(message(kind, blobs, body), "TEST", tmp_path))
    np.testing.assert_allclose(made.forward(given, ["y"])["y"], np.float32(wanted), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "blobs", "body", "words"),
    [
        ("SoftmaxWithLoss", "x 4 3 t 4", 'top: "p"', "0 loss_weight for 2 tops"),
        ("SoftmaxWithLoss", "x 4 3 t 4", 'top: "p" loss_weight: 1', "1 loss_weight for 2 tops"),
        ("Pooling", "x 1 1 4 4", "pooling_param { kernel_size: 2 pad_h: 1 }", "pad_h and pad_w are needed together"),
        ("Im2col", "x 2 3", "convolution_param { kernel_size: 1 }", "at least one spatial axis"),
        ("BatchNorm", "x 3", "", "there must be an axis of channels"),
        ("EuclideanLoss", "x 2 1 1 1 3 t 2 3", "", "at most 4 axes"),
        ("LSTM", "x 3 2 c 3 2", "recurrent_param { num_output: 2 }", "bottom 0 must have the axes"),
        ("Scale", "x 2 3", 'scale_param { num_axes: 0 filler { type: "xavier" } }', "and this is a scalar"),
        ("Bias", "x 2 3", "bias_param { axis: 2 num_axes: 0 }", "axis 2 must be one of the 2 axes"),
        (
            "InnerProduct",
            "x 2 3",
            'inner_product_param { num_output: 2 weight_filler { type: "gaussian" sparse: 3 } }',
            "sparse 3 must be <=",
        ),
    ],
)
def test_what_caffe_refuses_is_refused(kind: str, blobs: str, body: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^Caffe refuses layer 'l' .*{words}"):
        engine.create(offline.plan(message(kind, blobs, body), "TRAIN", tmp_path))


def test_a_learning_path_through_a_layer_without_a_gradient_is_refused() -> None:
    body = """
    layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 3 } }
    layer { name: "l" type: "KIND" bottom: "a" top: "b" }
    layer { name: "c" type: "InnerProduct" bottom: "b" top: "c" inner_product_param { num_output: 1 } LOSS }
    """
    heads = 'layer { name: "i" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 } } }'
    for kind in ("Threshold", "ArgMax"):
        made = whole(heads + body.replace("KIND", kind).replace("LOSS", "loss_weight: 1"))
        made.forward({"x": values(2, 4)})
        with pytest.raises(ConfigError, match=rf"layer 'l' \({kind}\): cannot backpropagate to bottom 'a'"):
            made.backward()
        free = whole(heads + body.replace("KIND", kind).replace("LOSS", ""))
        free.forward({"x": values(2, 4)})
        free.backward()
