"""Nets for the shape rules: `ACCEPTED` (real Caffe builds them) and `REFUSED` (it does not)."""

from __future__ import annotations


def layer(kind: str, bottoms: str = "x", tops: str = "y", body: str = "", name: str = "l") -> str:
    """One layer; bottoms and tops are words."""
    joined = " ".join([f'bottom: "{b}"' for b in bottoms.split()] + [f'top: "{t}"' for t in tops.split()])
    return f'layer {{ name: "{name}" type: "{kind}" {joined} {body} }}\n'


def inputs(**shapes: tuple[int, ...]) -> str:
    """An Input layer for each blob."""
    return "".join(
        f'layer {{ name: "{name}_in" type: "Input" top: "{name}" '
        f"input_param {{ shape {{ {' '.join(f'dim: {d}' for d in shape)} }} }} }}\n"
        for name, shape in shapes.items()
    )


def one(kind: str, body: str = "", tops: str = "y", **shapes: tuple[int, ...]) -> str:
    """A layer over inputs."""
    return inputs(**shapes) + layer(kind, " ".join(shapes), tops, body)


def conv(body: str, *shape: int, kind: str = "Convolution") -> str:
    return one(kind, f"convolution_param {{ {body} }}", x=shape or (2, 4, 9, 8))


def pool(body: str, *shape: int, tops: str = "y") -> str:
    return one("Pooling", f"pooling_param {{ {body} }}", tops, x=shape or (2, 3, 7, 8))


NEURONS = ("BNLL", "Dropout", "ELU", "Exp", "Log", "Power", "ReLU", "Sigmoid", "Swish", "TanH", "AbsVal", "Threshold")
LOSSES = ("EuclideanLoss", "SigmoidCrossEntropyLoss")

ACCEPTED: dict[str, str] = {
    **{f"{kind}": one(kind, x=(2, 3, 4)) for kind in NEURONS},
    **{f"{kind} in place": inputs(x=(2, 3)) + layer(kind, "x", "x") for kind in NEURONS if kind != "AbsVal"},
    **{kind: one(kind, "", "l", a=(4, 3, 2), b=(4, 6)) for kind in LOSSES},
    **{f"{kind} without a top": one(kind, "", "", a=(4, 3, 2), b=(4, 6)) for kind in LOSSES},
    "Clip": one("Clip", "clip_param { min: 0 max: 1 }", x=(2, 3)),
    "Clip without bounds": one("Clip", x=(2, 3)),
    "Eltwise max coeff": one("Eltwise", "eltwise_param { operation: MAX coeff: 2 coeff: 3 }", a=(2, 3), b=(2, 3)),
    "ContrastiveLoss of single values": one("ContrastiveLoss", "", "l", a=(4,), b=(4,), y=(4,)),
    "Scale by a scalar, any axis": one("Scale", "scale_param { axis: -4 }", x=(2, 3), s=()),
    "Bias by a scalar, any axis": one("Bias", "bias_param { axis: -4 }", x=(2, 3), s=()),
    "Scale two, filler without use": one(
        "Scale", 'scale_param { axis: 0 bias_term: true filler { type: "none" } }', x=(2, 3), s=(2, 3)
    ),
    "gaussian sparse": one(
        "InnerProduct",
        'inner_product_param { num_output: 4 weight_filler { type: "gaussian" sparse: 4 } }',
        x=(2, 3),
    ),
    "SigmoidCrossEntropyLoss 5-d": one("SigmoidCrossEntropyLoss", "", "l", a=(4, 1, 1, 2, 3), b=(4, 6)),
    "Silence of nothing": one("Silence", "", "", x=(0, 3)),
    "scalar ReLU": one("ReLU", x=()),
    "conv": conv("num_output: 6 kernel_size: 3"),
    "conv twice": inputs(a=(2, 4, 9, 8), b=(2, 4, 9, 8))
    + layer("Convolution", "a b", "c d", "convolution_param { num_output: 6 kernel_size: 3 stride: 2 }"),
    "conv h w": conv("num_output: 6 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 2"),
    "conv lists": conv("num_output: 6 kernel_size: 3 kernel_size: 5 stride: 2 stride: 3 pad: 0 pad: 2 dilation: 2"),
    "conv group": conv("num_output: 6 kernel_size: 3 group: 2 bias_term: false"),
    "conv 1x1": conv("num_output: 6 kernel_size: 1"),
    "conv 0-d": conv("num_output: 6 kernel_size: 1 axis: -1", 2, 3, 4),
    "conv 0-d without kernel": conv("num_output: 6 axis: 2", 2, 3, 4),
    "conv 1-d": conv("num_output: 6 kernel_size: 3 stride: 2", 2, 3, 10),
    "conv 3-d": conv("num_output: 6 kernel_size: 3 stride: 2 pad: 1", 1, 2, 5, 6, 7),
    "conv axis 2": conv("num_output: 6 kernel_size: 3 axis: 2", 2, 3, 4, 5, 6),
    "conv axis -3": conv("num_output: 6 kernel_size: 3 axis: -3", 2, 3, 4, 5, 6),
    "conv axis 0": conv("num_output: 2 kernel_size: 2 axis: 0", 4, 5, 6),
    "conv larger than its input": conv("num_output: 2 kernel_size: 3 stride: 2", 1, 1, 2, 5),
    "conv bilinear": conv('num_output: 2 kernel_size: 3 weight_filler { type: "bilinear" }'),
    "deconv": conv("num_output: 6 kernel_size: 4 stride: 2 pad: 1", kind="Deconvolution"),
    "deconv group": conv("num_output: 4 kernel_size: 3 stride: 3 group: 4", kind="Deconvolution"),
    "deconv 1-d dilated": conv(
        "num_output: 2 kernel_size: 3 dilation: 2 bias_term: false", 2, 3, 5, kind="Deconvolution"
    ),
    "deconv 3-d": conv("num_output: 2 kernel_size: 2 stride: 2", 1, 2, 3, 4, 5, kind="Deconvolution"),
    "im2col": conv("kernel_size: 3 stride: 2 pad: 1", kind="Im2col"),
    "im2col 1-d": conv("kernel_size: 3 dilation: 2", 2, 3, 9, kind="Im2col"),
    "im2col h w": conv("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 2", kind="Im2col"),
    "pool": pool("kernel_size: 3 stride: 2"),
    "pool floor": pool("kernel_size: 3 stride: 2 round_mode: FLOOR"),
    "pool mask": pool("kernel_size: 3 stride: 2 pad: 1", tops="y m"),
    "pool ave": pool("pool: AVE kernel_size: 3 stride: 2 pad: 1", 2, 3, 6, 6),
    "pool h w": pool("kernel_h: 3 kernel_w: 2 stride_h: 3 stride_w: 2 pad_h: 1 pad_w: 0", 2, 3, 10, 9),
    "pool clipped": pool("kernel_size: 2 stride: 3 pad: 1", 1, 1, 4, 4),
    "pool with gaps": pool("kernel_size: 1 stride: 2", 1, 1, 4, 4),
    "pool larger than its input": pool("kernel_size: 5 stride: 3", 1, 1, 3, 4),
    "pool global": pool("pool: AVE global_pooling: true"),
    "pool global mask": pool("global_pooling: true", tops="y m"),
    "pool stochastic": pool("pool: STOCHASTIC kernel_size: 2 stride: 2"),
    "SPP": one("SPP", "spp_param { pyramid_height: 3 }", x=(2, 3, 9, 11)),
    "SPP of one": one("SPP", "spp_param { pyramid_height: 1 pool: AVE }", x=(2, 3, 5, 4)),
    "LRN": one("LRN", x=(2, 3, 4, 5)),
    "LRN within": one("LRN", "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 }", x=(2, 3, 4, 5)),
    "BatchNorm": one("BatchNorm", x=(2, 3, 4, 5)),
    "BatchNorm 2-d": one("BatchNorm", "param { lr_mult: 0 }", x=(2, 3)),
    "Scale": one("Scale", x=(2, 3, 4)),
    "Scale in place with bias": inputs(x=(2, 3, 4)) + layer("Scale", "x", "x", "scale_param { bias_term: true }"),
    "Scale axes": one("Scale", "scale_param { axis: 0 num_axes: 2 bias_term: true }", x=(2, 3, 4)),
    "Scale rest": one("Scale", "scale_param { axis: -2 num_axes: -1 }", x=(2, 3, 4)),
    "Scale scalar": one("Scale", "scale_param { num_axes: 0 }", x=(2, 3, 4)),
    "Scale two": one("Scale", "scale_param { axis: 0 }", x=(2, 3, 4), s=(2, 3)),
    "Scale two with bias": one("Scale", "scale_param { axis: 1 bias_term: true }", x=(2, 3, 4), s=(3, 4)),
    "Scale by a scalar": one("Scale", "scale_param { axis: 1 }", x=(2, 3, 4), s=()),
    "Bias": one("Bias", x=(2, 3, 4)),
    "Bias rest": one("Bias", "bias_param { axis: 0 num_axes: -1 }", x=(2, 3, 4)),
    "Bias two": one("Bias", "bias_param { axis: -2 }", x=(2, 3, 4), s=(3, 4)),
    "PReLU": one("PReLU", x=(2, 3, 4)),
    "PReLU shared": one("PReLU", "prelu_param { channel_shared: true }", x=(2, 3, 4, 5)),
    "IP": one("InnerProduct", "inner_product_param { num_output: 5 }", x=(2, 3, 4)),
    "IP transposed": one("InnerProduct", "inner_product_param { num_output: 5 transpose: true }", x=(2, 3, 4)),
    "IP axis": one("InnerProduct", "inner_product_param { num_output: 5 axis: -1 bias_term: false }", x=(2, 3, 4)),
    "IP axis 0": one("InnerProduct", "inner_product_param { num_output: 5 axis: 0 }", x=(2, 3)),
    "Embed": one("Embed", "embed_param { num_output: 5 input_dim: 7 }", x=(2, 3)),
    "Softmax": one("Softmax", "softmax_param { axis: -1 }", x=(2, 3, 4)),
    "MVN": one("MVN", x=(2, 3, 4, 5)),
    "MVN 2-d": one("MVN", x=(2, 3)),
    "Eltwise": one("Eltwise", "eltwise_param { coeff: 1 coeff: -1 }", a=(2, 3), b=(2, 3)),
    "Eltwise max": one("Eltwise", "eltwise_param { operation: MAX }", a=(2, 3), b=(2, 3), c=(2, 3)),
    "Eltwise twice": inputs(x=(2, 3)) + layer("Eltwise", "x x"),
    "Concat": one("Concat", a=(2, 3, 4), b=(2, 1, 4)),
    "Concat last": one("Concat", "concat_param { axis: -1 }", a=(2, 3, 4), b=(2, 3, 2)),
    "Concat old": one("Concat", "concat_param { concat_dim: 0 }", a=(2, 3), b=(4, 3)),
    "Concat one": one("Concat", a=(2, 3)),
    "Slice": one("Slice", "", "a b c", x=(2, 6, 4)),
    "Slice points": one("Slice", "slice_param { slice_point: 1 slice_point: 4 }", "a b c", x=(2, 6, 4)),
    "Slice last": one("Slice", "slice_param { axis: -1 slice_point: 1 }", "a b", x=(2, 6, 4)),
    "Slice old": one("Slice", "slice_param { slice_dim: 0 }", "a b", x=(2, 6)),
    "Split": one("Split", "", "a b", x=(2, 3)),
    "Flatten": one("Flatten", x=(2, 3, 4)),
    "Flatten axes": one("Flatten", "flatten_param { axis: -3 end_axis: -2 }", x=(2, 3, 4, 5)),
    "Flatten nothing": one("Flatten", "flatten_param { axis: 2 end_axis: 1 }", x=(2, 3, 4)),
    "Reshape": one("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 2 } }", x=(2, 3, 4)),
    "Reshape part": one("Reshape", "reshape_param { shape { dim: 2 dim: -1 } axis: 1 num_axes: 1 }", x=(2, 6, 4)),
    "Reshape end": one("Reshape", "reshape_param { shape { dim: 1 dim: 1 } axis: -1 }", x=(2, 6)),
    "Reshape scalar": one("Reshape", "reshape_param { shape { } }", x=(1, 1)),
    "Crop": one("Crop", a=(2, 3, 8, 9), b=(1, 1, 5, 6)),
    "Crop offset": one("Crop", "crop_param { axis: 1 offset: 1 offset: 2 offset: 3 }", a=(2, 3, 8, 9), b=(2, 2, 5, 6)),
    "Crop last": one("Crop", "crop_param { axis: -1 offset: 2 }", a=(2, 3, 8), b=(1, 1, 5)),
    "Tile": one("Tile", "tile_param { axis: -1 tiles: 3 }", x=(2, 3)),
    "Reduction": one("Reduction", "reduction_param { axis: -1 }", x=(2, 3, 4)),
    "Reduction all": one("Reduction", x=(2, 3)),
    "ArgMax": one("ArgMax", "argmax_param { top_k: 2 }", x=(2, 3, 4, 5)),
    "ArgMax 2-d": one("ArgMax", "argmax_param { out_max_val: true }", x=(2, 3)),
    "ArgMax axis": one("ArgMax", "argmax_param { axis: -1 top_k: 2 out_max_val: true }", x=(2, 3, 4)),
    "BatchReindex": one("BatchReindex", x=(5, 3), i=(7,)),
    "Filter": one("Filter", "", "c d", a=(4, 3), b=(4, 2, 2), s=(4, 1)),
    "Silence": one("Silence", "", "", a=(2,), b=(3,)),
    "HDF5Output": one("HDF5Output", 'hdf5_output_param { file_name: "out.h5" }', "", a=(2,), b=(2,)),
    "Parameter": layer("Parameter", "", "y", "parameter_param { shape { dim: 2 dim: 3 } }"),
    "DummyData": layer("DummyData", "", "a b", "dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 } }"),
    "DummyData old": layer("DummyData", "", "a b", "dummy_data_param { num: 2 num: 3 channels: 1 height: 4 width: 5 }"),
    "Input": layer("Input", "", "a b", "input_param { shape { dim: 2 dim: 3 } }"),
    "MemoryData": layer("MemoryData", "", "a b", "memory_data_param { batch_size: 2 channels: 3 height: 4 width: 5 }"),
    "HingeLoss": one("HingeLoss", "", "l", a=(4, 3), b=(4,)),
    "MultinomialLogisticLoss": one("MultinomialLogisticLoss", "", "l", a=(4, 3), b=(4, 1, 1)),
    "ContrastiveLoss": one("ContrastiveLoss", "", "l", a=(4, 3), b=(4, 3, 1, 1), y=(4,)),
    "SoftmaxWithLoss": one("SoftmaxWithLoss", "", "l", a=(4, 3, 2), b=(4, 2)),
    "SoftmaxWithLoss axis": one("SoftmaxWithLoss", "softmax_param { axis: -1 }", "l", a=(4, 3, 2), b=(4, 3)),
    "SoftmaxWithLoss without a top": one("SoftmaxWithLoss", "", "", a=(4, 3), b=(4,)),
    "Infogain": one("InfogainLoss", "loss_weight: 1 loss_weight: 0", "l p", a=(4, 3), b=(4,), h=(1, 1, 3, 3)),
    "Accuracy": one("Accuracy", "accuracy_param { top_k: 2 }", "l", a=(4, 3), b=(4,)),
    "Accuracy of classes": one("Accuracy", "accuracy_param { axis: -1 }", "l p", a=(4, 2, 3), b=(4, 2)),
    "LSTM": one("LSTM", "recurrent_param { num_output: 5 }", a=(3, 2, 4), c=(3, 2)),
    "LSTM static": one("LSTM", "recurrent_param { num_output: 5 }", a=(3, 2, 4, 2), c=(3, 2), s=(2, 7)),
    "LSTM exposed": one(
        "LSTM",
        "recurrent_param { num_output: 5 expose_hidden: true }",
        "y h k",
        a=(3, 2, 4),
        c=(3, 2),
        h0=(1, 2, 5),
        c0=(1, 2, 5),
    ),
    "RNN": one("RNN", "recurrent_param { num_output: 5 }", a=(3, 2, 4), c=(3, 2)),
    "RNN exposed static": one(
        "RNN",
        "recurrent_param { num_output: 5 expose_hidden: true }",
        "y h",
        a=(3, 2, 4),
        c=(3, 2),
        s=(2, 3),
        h0=(1, 2, 5),
    ),
    "LSTMUnit": one("LSTMUnit", "", "c h", p=(1, 2, 3), g=(1, 2, 12), k=(1, 2)),
    "shared": inputs(x=(2, 3), z=(4, 3))
    + layer("InnerProduct", "x", "a", 'param { name: "w" } inner_product_param { num_output: 5 }', "one")
    + layer("InnerProduct", "z", "b", 'param { name: "w" } inner_product_param { num_output: 5 }', "two"),
    "shared loosely": inputs(x=(2, 3), z=(4, 5))
    + layer(
        "InnerProduct", "x", "a", 'param { name: "w" } inner_product_param { num_output: 5 bias_term: false }', "one"
    )
    + layer(
        "InnerProduct",
        "z",
        "b",
        'param { name: "w" share_mode: PERMISSIVE } inner_product_param { num_output: 3 bias_term: false }',
        "two",
    ),
    "used twice, then in place elsewhere": inputs(x=(2, 3))
    + layer("ReLU", "x", "a", "", "one")
    + layer("ReLU", "a", "a", "", "two")
    + layer("Eltwise", "x a", "y", "", "three"),
}

REFUSED: dict[str, str] = {
    "no such bottom": layer("ReLU", "nothing"),
    "made twice": inputs(x=(2,)) + layer("ReLU", "x", "y", "", "one") + layer("ReLU", "x", "y", "", "two"),
    "in place on a used blob": inputs(x=(2,))
    + layer("Power", "x", "y", "", "one")
    + layer("ReLU", "x", "x", "", "two"),
    "AbsVal in place": inputs(x=(2,)) + layer("AbsVal", "x", "x"),
    "Flatten in place": inputs(x=(2,)) + layer("Flatten", "x", "x"),
    "Reshape in place": inputs(x=(2,)) + layer("Reshape", "x", "x", "reshape_param { shape { dim: -1 } }"),
    "Split in place": inputs(x=(2,)) + layer("Split", "x", "x y"),
    "too few bottoms": one("Eltwise", x=(2,)),
    "too many bottoms": one("ReLU", a=(2,), b=(2,)),
    "too many tops": one("ReLU", "", "a b", x=(2,)),
    "pairs": one(
        "Convolution", "convolution_param { num_output: 1 kernel_size: 1 }", "y", a=(1, 1, 2, 2), b=(1, 1, 2, 2)
    ),
    "loss_weight twice": one("ReLU", "loss_weight: 1 loss_weight: 2", x=(2,)),
    "propagate_down": one("ReLU", "propagate_down: true propagate_down: true", x=(2,)),
    "param of none": one("ReLU", "param { lr_mult: 1 }", x=(2,)),
    "three params": one("InnerProduct", "param {} param {} param {} inner_product_param { num_output: 2 }", x=(2, 3)),
    "conv without kernel": conv("num_output: 6"),
    "conv with both kernels": conv("num_output: 6 kernel_size: 3 kernel_h: 3"),
    "conv h w in 1-d": conv("num_output: 6 kernel_h: 3 kernel_w: 3", 2, 3, 9),
    "conv without outputs": conv("kernel_size: 3"),
    "conv group in": conv("num_output: 6 kernel_size: 3 group: 3"),
    "conv group out": conv("num_output: 5 kernel_size: 3 group: 2"),
    "conv too large": conv("num_output: 6 kernel_size: 30"),
    "conv with an empty output": conv("num_output: 2 kernel_size: 3", 1, 1, 2, 5),
    "conv zero kernel": conv("num_output: 6 kernel_size: 0"),
    "conv zero stride": conv("num_output: 6 kernel_size: 3 stride: 0"),
    "conv three strides": conv("num_output: 6 kernel_size: 3 stride: 1 stride: 1 stride: 1"),
    "conv axis": conv("num_output: 6 kernel_size: 3 axis: 4"),
    "conv bottoms differ": inputs(a=(2, 4, 9, 8), b=(2, 4, 9, 9))
    + layer("Convolution", "a b", "c d", "convolution_param { num_output: 6 kernel_size: 3 }"),
    "conv filler": conv('num_output: 2 kernel_size: 3 weight_filler { type: "normal" }'),
    "conv bilinear": conv('num_output: 2 kernel_h: 3 kernel_w: 2 weight_filler { type: "bilinear" }'),
    "deconv group": conv("num_output: 3 kernel_size: 3 group: 2", kind="Deconvolution"),
    "im2col of nothing": conv("kernel_size: 3", 2, 3, kind="Im2col"),
    "pool without kernel": pool(""),
    "pool with half a kernel": pool("kernel_h: 2"),
    "pool both kernels": pool("kernel_size: 2 kernel_h: 2 kernel_w: 2"),
    "pool pad": pool("kernel_size: 2 pad: 2"),
    "pool stochastic pad": pool("pool: STOCHASTIC kernel_size: 3 pad: 1"),
    "pool half a pad": pool("kernel_size: 2 pad_h: 1"),
    "pool global kernel": pool("global_pooling: true kernel_size: 2"),
    "pool global stride": pool("global_pooling: true stride: 2"),
    "pool 3-d": pool("kernel_size: 2", 2, 3, 4),
    "pool two tops": pool("pool: AVE kernel_size: 2", tops="y m"),
    "pool much too large": pool("kernel_size: 9", 1, 1, 4, 4),
    "SPP too small": one("SPP", "spp_param { pyramid_height: 3 }", x=(1, 1, 2, 2)),
    "SPP without height": one("SPP", x=(1, 1, 5, 5)),
    "LRN even": one("LRN", "lrn_param { local_size: 4 }", x=(2, 3, 4, 5)),
    "LRN 2-d": one("LRN", x=(2, 3)),
    "BatchNorm rate": one("BatchNorm", "param { lr_mult: 1 }", x=(2, 3)),
    "BatchNorm 1-d": one("BatchNorm", x=(2,)),
    "Scale beyond": one("Scale", "scale_param { axis: 1 num_axes: 3 }", x=(2, 3, 4)),
    "Scale two differ": one("Scale", "scale_param { axis: 0 }", x=(2, 3, 4), s=(2, 4)),
    "Scale axis": one("Scale", "scale_param { axis: 3 }", x=(2, 3, 4)),
    "Bias two beyond": one("Bias", "bias_param { axis: 1 }", x=(2, 3), s=(3, 1)),
    "PReLU 1-d": one("PReLU", x=(2,)),
    "PReLU 5-d": one("PReLU", x=(2, 3, 1, 1, 1)),
    "IP axis": one("InnerProduct", "inner_product_param { num_output: 5 axis: 3 }", x=(2, 3, 4)),
    "IP of nothing": one("InnerProduct", x=(2, 3)),
    "Embed of nothing": one("Embed", "embed_param { num_output: 5 }", x=(2, 3)),
    "Softmax axis": one("Softmax", "softmax_param { axis: 2 }", x=(2, 3)),
    "MVN 5-d": one("MVN", x=(1, 2, 3, 4, 5)),
    "Eltwise shapes": one("Eltwise", a=(2, 3), b=(2, 4)),
    "Eltwise coeff": one("Eltwise", "eltwise_param { coeff: 1 }", a=(2, 3), b=(2, 3)),
    "Eltwise prod coeff": one("Eltwise", "eltwise_param { operation: PROD coeff: 1 coeff: 1 }", a=(2, 3), b=(2, 3)),
    "Concat axes": one("Concat", a=(2, 3), b=(2, 3, 1)),
    "Concat sizes": one("Concat", a=(2, 3, 4), b=(2, 3, 5)),
    "Concat both": one("Concat", "concat_param { axis: 1 concat_dim: 1 }", a=(2, 3), b=(2, 3)),
    "Slice uneven": one("Slice", "", "a b", x=(2, 5)),
    "Slice points": one("Slice", "slice_param { slice_point: 3 slice_point: 2 }", "a b c", x=(2, 6)),
    "Slice one point": one("Slice", "slice_param { slice_point: 3 }", "a b c", x=(2, 6)),
    "Slice beyond": one("Slice", "slice_param { slice_point: 7 }", "a b", x=(2, 6)),
    "Slice nothing left": one("Slice", "slice_param { slice_point: 6 }", "a b", x=(2, 6)),
    "Flatten order": one("Flatten", "flatten_param { axis: 2 end_axis: 0 }", x=(2, 3, 4)),
    "Reshape two": one("Reshape", "reshape_param { shape { dim: -1 dim: -1 } }", x=(2, 3)),
    "Reshape count": one("Reshape", "reshape_param { shape { dim: 5 } }", x=(2, 3)),
    "Reshape odd": one("Reshape", "reshape_param { shape { dim: 4 dim: -1 } }", x=(2, 3)),
    "Reshape copy": one("Reshape", "reshape_param { shape { dim: 2 dim: 3 dim: 0 } }", x=(2, 3)),
    "Reshape beyond": one("Reshape", "reshape_param { shape { dim: -1 } axis: 1 num_axes: 2 }", x=(2, 3)),
    "Crop beyond": one("Crop", "crop_param { offset: 4 }", a=(2, 3, 8, 9), b=(1, 1, 5, 6)),
    "Crop offsets": one("Crop", "crop_param { offset: 1 offset: 1 offset: 1 }", a=(2, 3, 8, 9), b=(1, 1, 5, 6)),
    "Crop axes": one("Crop", a=(2, 3, 8, 9), b=(1, 1, 5)),
    "Tile none": one("Tile", x=(2, 3)),
    "Tile zero": one("Tile", "tile_param { tiles: 0 }", x=(2, 3)),
    "Reduction axis": one("Reduction", "reduction_param { axis: 2 }", x=(2, 3)),
    "ArgMax k": one("ArgMax", "argmax_param { top_k: 4 }", x=(2, 3)),
    "ArgMax axis k": one("ArgMax", "argmax_param { axis: 0 top_k: 3 }", x=(2, 3)),
    "BatchReindex": one("BatchReindex", x=(5, 3), i=(7, 1)),
    "Filter tops": one("Filter", "", "c", a=(4, 3), b=(4, 2), s=(4, 1)),
    "Filter items": one("Filter", "", "c", a=(3, 3), s=(4, 1)),
    "Filter selector": one("Filter", "", "c", a=(4, 3), s=(4, 2)),
    "DummyData shapes": layer("DummyData", "", "a b c", "dummy_data_param { shape { dim: 2 } shape { dim: 2 } }"),
    "DummyData both": layer("DummyData", "", "a", "dummy_data_param { shape { dim: 2 } num: 1 }"),
    "Input shapes": layer("Input", "", "a b c", "input_param { shape { dim: 2 } shape { dim: 2 } }"),
    "Input negative": layer("Input", "", "a", "input_param { shape { dim: -2 } }"),
    "Input huge": layer("Input", "", "a", "input_param { shape { dim: 65536 dim: 65536 } }"),
    "MemoryData": layer("MemoryData", "", "a b", "memory_data_param { batch_size: 2 channels: 3 height: 4 }"),
    **{
        f"{kind} filler of a scalar": one(
            "Scale", f'scale_param {{ num_axes: 0 filler {{ type: "{kind}" }} }}', x=(2, 3)
        )
        for kind in ("xavier", "msra", "positive_unitball")
    },
    "Bias filler of a scalar": one("Bias", 'bias_param { num_axes: 0 filler { type: "xavier" } }', x=(2, 3)),
    "Scale filler": one("Scale", 'scale_param { filler { type: "none" } }', x=(2, 3)),
    "Scale bias filler": one("Scale", 'scale_param { bias_term: true bias_filler { type: "none" } }', x=(2, 3)),
    "Scale scalar axis": one("Scale", "scale_param { axis: 2 num_axes: 0 }", x=(2, 3)),
    "Bias scalar axis": one("Bias", "bias_param { axis: 2 num_axes: 0 }", x=(2, 3)),
    "gaussian too sparse": one(
        "InnerProduct",
        'inner_product_param { num_output: 4 weight_filler { type: "gaussian" sparse: 5 } }',
        x=(2, 3),
    ),
    "conv no group": conv("num_output: 6 kernel_size: 3 group: 0"),
    "conv kernel beyond int": conv("num_output: 6 kernel_size: 4294967295"),
    "Euclidean 5-d": one("EuclideanLoss", "", "l", a=(4, 1, 1, 2, 3), b=(4, 6)),
    "HingeLoss 5-d": one("HingeLoss", "", "l", a=(4, 3, 1, 1, 1), b=(4,)),
    "Multinomial 5-d": one("MultinomialLogisticLoss", "", "l", a=(4, 3, 1, 1, 1), b=(4,)),
    "loss_weight for one of two tops": one("SoftmaxWithLoss", "loss_weight: 1", "l p", a=(4, 3), b=(4,)),
    "Euclidean of nothing": one("EuclideanLoss", "", "l", a=(0, 3), b=(0, 3)),
    "Reduction of nothing": one("Reduction", x=(0, 3)),
    "Euclidean items": one("EuclideanLoss", "", "l", a=(4, 3), b=(6, 2)),
    "Euclidean counts": one("EuclideanLoss", "", "l", a=(4, 3), b=(4, 2)),
    "HingeLoss items": one("HingeLoss", "", "l", a=(4, 3), b=(3,)),
    "Multinomial labels": one("MultinomialLogisticLoss", "", "l", a=(4, 3), b=(4, 3)),
    "Contrastive planes": one("ContrastiveLoss", "", "l", a=(4, 3, 2), b=(4, 3, 2), y=(4,)),
    "SoftmaxWithLoss labels": one("SoftmaxWithLoss", "", "l", a=(4, 3, 2), b=(4,)),
    "SoftmaxWithLoss without loss_weight": one("SoftmaxWithLoss", "", "l p", a=(4, 3, 2), b=(4, 2)),
    "SoftmaxWithLoss items": one("SoftmaxWithLoss", "", "l", a=(4, 3), b=(1, 4)),
    "SoftmaxWithLoss one-hot": one("SoftmaxWithLoss", "", "l", a=(4, 3), b=(4, 3)),
    "Infogain matrix": one("InfogainLoss", "", "l", a=(4, 3), b=(4,), h=(1, 1, 4, 4)),
    "Accuracy k": one("Accuracy", "accuracy_param { top_k: 4 }", "l", a=(4, 3), b=(4,)),
    "Accuracy labels": one("Accuracy", "", "l", a=(4, 3), b=(3,)),
    "LSTM 2-d": one("LSTM", "recurrent_param { num_output: 5 }", a=(3, 2), c=(3, 2)),
    "LSTM cont": one("LSTM", "recurrent_param { num_output: 5 }", a=(3, 2, 4), c=(2, 3)),
    "LSTM of nothing": one("LSTM", "", a=(3, 2, 4), c=(3, 2)),
    "LSTM state": one(
        "LSTM",
        "recurrent_param { num_output: 5 expose_hidden: true }",
        "y h k",
        a=(3, 2, 4),
        c=(3, 2),
        h0=(1, 2, 5),
        c0=(2, 5),
    ),
    "LSTMUnit gates": one("LSTMUnit", "", "c h", p=(1, 2, 3), g=(1, 2, 11), k=(1, 2)),
    "shared shapes": inputs(x=(2, 3), z=(4, 5))
    + layer("InnerProduct", "x", "a", 'param { name: "w" } inner_product_param { num_output: 5 }', "one")
    + layer("InnerProduct", "z", "b", 'param { name: "w" } inner_product_param { num_output: 5 }', "two"),
    "no such type": one("Convolutoin", x=(2, 3)),
}
