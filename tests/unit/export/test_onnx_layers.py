"""Every layer type that ONNX can say, by onnxruntime and by the torch engine; the others are refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="the exports' tests need torch: run them in a Python that has it")
pytest.importorskip("onnxruntime")

from unit.export import export_nets as nets

from caffe_on_grid.engine.export import deploy, onnx_net, state_dict
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import shapes

pytestmark = pytest.mark.torch

IMAGE = "2 6 7 9"
CASES = [
    ("AbsVal", IMAGE, ""),
    ("ArgMax", IMAGE, "argmax_param { axis: 1 }"),
    ("ArgMax", IMAGE, ""),
    ("ArgMax", "3 5", ""),
    ("BNLL", IMAGE, ""),
    ("BatchNorm", IMAGE, "batch_norm_param { eps: 0.01 }"),
    ("BatchNorm", "4 3", ""),
    ("Bias", IMAGE, "bias_param { axis: 1 num_axes: 2 }"),
    ("Bias", f"{IMAGE} | 2 6", "bias_param { axis: 0 }"),
    ("Clip", IMAGE, "clip_param { min: -0.5 max: 0.7 }"),
    ("Concat", f"{IMAGE} | 2 1 7 9", ""),
    ("Concat", f"{IMAGE} | 3 6 7 9", "concat_param { axis: 0 }"),
    ("Concat", "2 3 4 | 2 3 1", "concat_param { axis: -1 }"),
    ("Convolution", IMAGE, "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 group: 2 dilation: 2 }"),
    (
        "Convolution",
        IMAGE,
        "convolution_param { num_output: 3 kernel_h: 1 kernel_w: 4 pad_h: 0 pad_w: 2 stride_h: 3 stride_w: 1 "
        "bias_term: false }",
    ),
    ("Convolution", "2 3 5 6 4", "convolution_param { num_output: 2 kernel_size: [2, 3, 1] }"),
    ("Convolution", "2 3 9", "convolution_param { num_output: 2 kernel_size: 3 }"),
    ("ConvolutionDepthwise", IMAGE, "convolution_param { num_output: 6 kernel_size: 3 }"),
    ("Crop", f"{IMAGE} | 2 6 4 5", "crop_param { axis: 2 offset: 1 offset: 3 }"),
    ("Deconvolution", IMAGE, "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 2 }"),
    ("DepthwiseConvolution", IMAGE, "convolution_param { num_output: 6 kernel_size: 3 pad: 1 }"),
    ("Dropout", IMAGE, "dropout_param { dropout_ratio: 0.9 }"),
    ("ELU", IMAGE, "elu_param { alpha: 0.3 }"),
    ("Eltwise", f"{IMAGE} | {IMAGE} | {IMAGE}", "eltwise_param { operation: PROD }"),
    ("Eltwise", f"{IMAGE} | {IMAGE} | {IMAGE}", "eltwise_param { operation: MAX }"),
    ("Eltwise", f"{IMAGE} | {IMAGE} | {IMAGE}", "eltwise_param { coeff: 1 coeff: -2 coeff: 0.5 }"),
    ("Eltwise", f"{IMAGE} | {IMAGE}", ""),
    ("Embed", "2 4", "embed_param { num_output: 5 input_dim: 3 }"),
    ("Embed", "2 4", "embed_param { num_output: 5 input_dim: 3 bias_term: false }"),
    ("Exp", IMAGE, "exp_param { base: 2 scale: 0.5 shift: -1 }"),
    ("Exp", IMAGE, ""),
    ("Flatten", IMAGE, ""),
    ("Flatten", IMAGE, "flatten_param { axis: 2 end_axis: 3 }"),
    ("Flatten", IMAGE, "flatten_param { axis: 0 end_axis: 1 }"),
    ("InnerProduct", IMAGE, "inner_product_param { num_output: 5 }"),
    ("InnerProduct", "3 4", "inner_product_param { num_output: 5 transpose: true bias_term: false }"),
    ("InnerProduct", IMAGE, "inner_product_param { num_output: 5 axis: 2 }"),
    ("InnerProduct", "2 3 4", "inner_product_param { num_output: 5 axis: -1 transpose: true bias_term: false }"),
    ("Interp", IMAGE, "interp_param { height: 12 width: 5 }"),
    ("Interp", IMAGE, "interp_param { zoom_factor: 2 pad_beg: -1 pad_end: -1 }"),
    ("LRN", IMAGE, "lrn_param { local_size: 3 alpha: 0.9 beta: 0.6 k: 2 }"),
    ("LRN", IMAGE, "lrn_param { local_size: 5 alpha: 0.9 norm_region: WITHIN_CHANNEL }"),
    ("Log", IMAGE, "log_param { base: 10 scale: 0.1 shift: 3 }"),
    ("MVN", IMAGE, ""),
    ("MVN", IMAGE, "mvn_param { across_channels: true normalize_variance: false }"),
    ("MVN", "3 4", "mvn_param { across_channels: true }"),
    ("Normalize", IMAGE, "norm_param { across_spatial: false channel_shared: false }"),
    ("Normalize", IMAGE, "norm_param { eps: 0.1 }"),
    ("PReLU", IMAGE, ""),
    ("PReLU", "3 4", "prelu_param { channel_shared: true }"),
    ("Permute", IMAGE, "permute_param { order: 0 order: 2 order: 3 order: 1 }"),
    ("Permute", IMAGE, "permute_param { order: 3 }"),
    ("Pooling", IMAGE, "pooling_param { kernel_size: 3 stride: 2 }"),
    ("Pooling", IMAGE, "pooling_param { kernel_size: 3 stride: 2 pad: 1 }"),
    ("Pooling", IMAGE, "pooling_param { kernel_size: 2 stride: 3 round_mode: FLOOR }"),
    ("Pooling", IMAGE, "pooling_param { pool: AVE kernel_size: 3 stride: 2 }"),
    ("Pooling", IMAGE, "pooling_param { pool: AVE kernel_size: 4 stride: 3 pad: 2 }"),
    ("Pooling", IMAGE, "pooling_param { pool: AVE kernel_h: 2 kernel_w: 5 stride_h: 2 stride_w: 4 pad_h: 1 pad_w: 2 }"),
    ("Pooling", IMAGE, "pooling_param { pool: AVE global_pooling: true }"),
    ("Pooling", IMAGE, "pooling_param { global_pooling: true }"),
    ("Power", IMAGE, "power_param { power: 2 scale: 0.5 shift: 0.1 }"),
    ("Power", IMAGE, ""),
    ("ReLU", IMAGE, ""),
    ("ReLU", IMAGE, "relu_param { negative_slope: 0.1 }"),
    ("ReLU6", IMAGE, ""),
    ("Reduction", IMAGE, "reduction_param { axis: 1 coeff: 0.5 }"),
    ("Reduction", IMAGE, "reduction_param { operation: ASUM axis: 2 }"),
    ("Reduction", IMAGE, "reduction_param { operation: SUMSQ axis: -1 }"),
    ("Reduction", "2 3 4", "reduction_param { operation: MEAN axis: 2 coeff: 2 }"),
    ("Reshape", IMAGE, "reshape_param { shape { dim: 0 dim: -1 dim: 9 } }"),
    ("Reshape", IMAGE, "reshape_param { shape { dim: 4 dim: -1 } }"),
    ("Scale", IMAGE, "scale_param { bias_term: true }"),
    ("Scale", IMAGE, "scale_param { axis: 2 num_axes: 2 }"),
    ("Scale", f"{IMAGE} | 2 6", "scale_param { axis: 0 }"),
    ("Scale", f"{IMAGE} | 6 7", "scale_param { axis: 1 bias_term: true }"),
    ("Axpy", f"2 6 1 1 | {IMAGE} | {IMAGE}", ""),
    ("ShuffleChannel", IMAGE, "shuffle_channel_param { group: 3 }"),
    ("Sigmoid", IMAGE, ""),
    ("Softmax", IMAGE, ""),
    ("Softmax", "3 4", "softmax_param { axis: -1 }"),
    ("Swish", IMAGE, "swish_param { beta: 1.5 }"),
    ("TanH", IMAGE, ""),
    ("Threshold", IMAGE, "threshold_param { threshold: 0.2 }"),
    ("Tile", IMAGE, "tile_param { axis: 1 tiles: 3 }"),
]


def net_of(kind: str, given: str, param: str, tops: str = "y") -> str:
    """One layer over inputs of these shapes."""
    source, bottoms = "", ""
    for at, dims in enumerate(given.split("|")):
        shape = " ".join(f"dim: {dim}" for dim in dims.split())
        source += f'layer {{ name: "x{at}" type: "Input" top: "x{at}" input_param {{ shape {{ {shape} }} }} }}\n'
        bottoms += f'bottom: "x{at}" '
    ends = " ".join(f'top: "{top}"' for top in tops.split())
    return f'{source}layer {{ name: "l" type: "{kind}" {bottoms} {ends} {param} }}'


def compare(source: str, scratch: Path, *names: str) -> None:
    """Both give the same; with another number of samples too, where the graph leaves it open."""
    net = nets.net_of(source)
    known = shapes.infer(net)
    held = nets.parameters(known)
    engine, session = nets.engine(net, held, scratch), nets.onnx(net, known, held)
    left_open = session.get_inputs()[0].shape[0] == "N"
    for batch in (None, known.blobs["x0"][0] + 1) if left_open else (None,):
        given = nets.inputs(net, known, batch)
        if "Embed" in source:
            given = {"x0": np.arange(given["x0"].size).reshape(given["x0"].shape).astype(np.float32) % 3}
        wanted = engine.forward(given, names)
        for name, found in zip(names, session.run(names, given)):
            nets.close(found, wanted[name])


@pytest.mark.parametrize(("kind", "given", "param"), CASES, ids=lambda value: str(value)[:60])
def test_layer(kind: str, given: str, param: str, tmp_path: Path) -> None:
    compare(net_of(kind, given, param), tmp_path, "y")


def test_layers_of_several_tops(tmp_path: Path) -> None:
    compare(net_of("Slice", IMAGE, "slice_param { slice_point: 1 slice_point: 3 }", "a b c"), tmp_path, "a", "b", "c")
    compare(net_of("Split", IMAGE, "", "a b"), tmp_path, "a", "b")
    two = "convolution_param { num_output: 2 kernel_size: 3 }"
    compare(net_of("Convolution", f"{IMAGE} | {IMAGE}", two, "a b"), tmp_path, "a", "b")


def test_a_parameter(tmp_path: Path) -> None:
    more = 'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: [2, 3] } } }\n'
    compare(more + net_of("Eltwise", "2 3", 'bottom: "p"'), tmp_path, "y")


def test_layers_in_place_and_inputs_changed_in_place(tmp_path: Path) -> None:
    source = (
        net_of("Convolution", IMAGE, "convolution_param { num_output: 3 kernel_size: 3 }")
        + """
        layer { name: "bn" type: "BatchNorm" bottom: "y" top: "y" }
        layer { name: "s" type: "Scale" bottom: "y" top: "y" scale_param { bias_term: true } }
        layer { name: "r" type: "ReLU" bottom: "y" top: "y" }
        layer { name: "t" type: "TanH" bottom: "y" top: "z" }"""
    )
    compare(source, tmp_path, "z")
    compare(
        net_of("Power", IMAGE, "power_param { scale: 2 }", "x0")
        + " layer { name: 'm' type: 'AbsVal' bottom: 'x0' top: 'y' }",
        tmp_path,
        "y",
    )


def test_every_type_is_tested() -> None:
    assert {kind for kind, *_ in CASES} | {"Slice", "Split", "Parameter"} == set(onnx_net.TYPES)
    assert set(onnx_net.TYPES) < set(shapes.RULES)


@pytest.mark.parametrize(
    ("kind", "given", "param", "words"),
    [
        ("LSTM", "3 2 4 | 3 2", "recurrent_param { num_output: 2 }", r"no form in ONNX for layer 'l' \(LSTM\)"),
        ("SPP", IMAGE, "spp_param { pyramid_height: 2 }", r"no form in ONNX for layer 'l' \(SPP\)"),
        ("Pooling", IMAGE, "pooling_param { pool: STOCHASTIC kernel_size: 2 }", "STOCHASTIC pooling has no form"),
        ("Pooling", IMAGE, "pooling_param { kernel_size: 1 stride: 5 }", "a window begins beyond its input"),
        ("BatchNorm", IMAGE, "batch_norm_param { use_global_stats: false }", "each batch's own statistics"),
        ("ArgMax", IMAGE, "argmax_param { top_k: 2 }", "only top_k: 1"),
        ("Convolution", IMAGE, "convolution_param { num_output: 2 kernel_size: 3 axis: 0 }", "channels are axis 0"),
    ],
)
def test_what_has_no_form_is_refused_by_name(kind: str, given: str, param: str, words: str) -> None:
    net = nets.net_of(net_of(kind, given, param))
    known = shapes.infer(net)
    with pytest.raises(ConfigError, match=words):
        onnx_net.model(net, known, nets.parameters(known))


def test_a_mask_is_refused() -> None:
    net = nets.net_of(net_of("Pooling", IMAGE, "pooling_param { kernel_size: 2 }", "y mask"))
    with pytest.raises(ConfigError, match=r"layer 'l' \(Pooling\) cannot be exported: the mask"):
        onnx_net.model(net, shapes.infer(net), {})


def test_a_state_dict_refuses_what_it_cannot_name() -> None:
    net = nets.net_of(net_of("LSTM", "3 2 4 | 3 2", "recurrent_param { num_output: 2 }"))
    with pytest.raises(ConfigError, match=r"layer 'l' \(LSTM\): its parameters have no form in a state_dict"):
        state_dict.content(net, nets.parameters(shapes.infer(net)))


def test_outputs_and_what_they_need() -> None:
    source = (
        net_of("InnerProduct", "2 3", "inner_product_param { num_output: 4 }")
        + """
        layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 } } }
        layer { name: "side" type: "TanH" bottom: "x0" top: "side" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }
        layer { name: "acc" type: "Accuracy" bottom: "y" bottom: "label" top: "acc" }
        layer { name: "e" type: "EuclideanLoss" bottom: "y" bottom: "y" top: "e" }"""
    )
    whole = deploy.deploy(nets.net_of(source))
    assert [(layer.name, layer.type) for layer in whole.layer] == [
        ("x0", "Input"),
        ("l", "InnerProduct"),
        ("side", "TanH"),
        ("loss", "Softmax"),
    ]
    assert deploy.ends(whole) == ["side", "prob"]
    assert [layer.name for layer in deploy.deploy(nets.net_of(source), ["y"]).layer] == ["x0", "l"]
    with pytest.raises(ConfigError, match=r"no blob 'prop' to give \(did you mean 'prob'\?\)"):
        deploy.deploy(nets.net_of(source), ["prop"])
