"""Whole small nets for nets_in_caffe.py: sharing, propagate_down, in-place rules, loss weights, faults."""

from __future__ import annotations

from oracle.net_cases import Case

DATA = """
layer { name: "in" type: "Input" top: "x" top: "t"
  input_param { shape { dim: 4 dim: 3 dim: 5 dim: 5 } shape { dim: 4 } } }
"""
FILL = 'weight_filler { type: "xavier" } bias_filler { type: "gaussian" std: 0.2 }'


def _ip(name: str, bottom: str, top: str, outputs: int, more: str = "") -> str:
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top}" {more}'
        f" inner_product_param {{ num_output: {outputs} {FILL} }} }}\n"
    )


def _layer(name: str, kind: str, bottom: str, top: str, more: str = "") -> str:
    ends = "".join(f' bottom: "{b}"' for b in bottom.split()) + "".join(f' top: "{t}"' for t in top.split())
    return f'layer {{ name: "{name}" type: "{kind}"{ends} {more} }}\n'


LOSS = _layer("loss", "SoftmaxWithLoss", "y t", "loss")

NETS: dict[str, tuple[str, list[str]]] = {
    "shared": (
        _ip("a", "x", "a", 5, 'param { name: "w" lr_mult: 2 } param { name: "b" }')
        + _ip("b", "x", "b", 5, 'param { name: "w" } param { name: "b2" }')
        + _layer("sum", "Eltwise", "a b", "y")
        + LOSS,
        ["a", "b", "y"],
    ),
    "permissive": (
        _ip("a", "x", "a", 6, 'param { name: "w" } param { lr_mult: 0 }')
        + _layer("r", "Reshape", "a", "r", "reshape_param { shape { dim: 4 dim: 6 } }")
        + _layer(
            "b",
            "InnerProduct",
            "x",
            "y",
            'param { name: "w" share_mode: PERMISSIVE } '
            "inner_product_param { num_output: 6 transpose: true bias_term: false }",
        )
        + _layer("sum", "Eltwise", "r y", "z")
        + _layer("loss", "SoftmaxWithLoss", "z t", "loss"),
        ["y", "z"],
    ),
    "frozen": (
        _ip("a", "x", "a", 5, "param { lr_mult: 0 } param { lr_mult: 0 }") + _ip("b", "a", "y", 4) + LOSS,
        ["y"],
    ),
    "propagate-down": (
        _ip("a", "x", "a", 5) + _ip("b", "a", "y", 4, "propagate_down: false") + LOSS,
        ["y"],
    ),
    "propagate-down-label": (
        _ip("a", "x", "y", 5)
        + _layer("loss", "SoftmaxWithLoss", "y t", "loss", "propagate_down: true propagate_down: false loss_weight: 3"),
        ["y"],
    ),
    "loss-in-the-midst": (
        _ip("a", "x", "a", 5)
        + _layer("reduce", "Reduction", "a", "r", "loss_weight: 0.3 reduction_param { operation: SUMSQ }")
        + _layer("mid", "EuclideanLoss", "a a", "e", "loss_weight: -2")
        + _layer("relu", "ReLU", "a", "q")
        + _ip("b", "q", "y", 4)
        + LOSS,
        ["a", "q", "y"],
    ),
    "weight-on-a-used-top": (
        _layer(
            "c",
            "Convolution",
            "x",
            "c",
            f"loss_weight: 0.01 convolution_param {{ num_output: 2 kernel_size: 3 {FILL} }}",
        )
        + _ip("b", "c", "y", 4)
        + LOSS,
        ["c", "y"],
    ),
    "loss-used-twice": (
        _ip("a", "x", "y", 5)
        + _layer("loss", "SoftmaxWithLoss", "y t", "loss", "loss_weight: 1")
        + _layer("again", "Power", "loss", "p", "loss_weight: 0.5 power_param { power: 2 }"),
        ["y"],
    ),
    "in-place-chain": (
        _layer("c", "Convolution", "x", "c", f"convolution_param {{ num_output: 4 kernel_size: 3 {FILL} }}")
        + _layer("bn", "BatchNorm", "c", "c")
        + _layer("s", "Scale", "c", "c", "scale_param { bias_term: true }")
        + _layer("r", "ReLU", "c", "c")
        + _layer("d", "Dropout", "c", "c", "dropout_param { dropout_ratio: 0.3 }")
        + _layer("p", "Pooling", "c", "p", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }")
        + _ip("b", "p", "y", 4)
        + LOSS,
        ["c", "p", "y"],
    ),
    "strict-in-place-flatten": (
        _layer("c", "Convolution", "x", "c", f"convolution_param {{ num_output: 2 kernel_size: 3 {FILL} }}")
        + _layer("f", "Flatten", "c", "f")
        + _layer("r", "ReLU", "f", "f")
        + _layer("p", "Pooling", "c", "p", "pooling_param { pool: AVE kernel_size: 2 }")
        + _layer("q", "Flatten", "p", "q")
        + _layer("cat", "Concat", "f q", "cat")
        + _ip("b", "cat", "y", 4)
        + LOSS,
        [],
    ),
    "siamese": (
        _layer("sl", "Slice", "x", "l r", "slice_param { axis: 0 }")
        + _layer("st", "Slice", "t", "u v", "slice_param { axis: 0 }")
        + _ip("a", "l", "a", 3, 'param { name: "w" } param { name: "b" }')
        + _ip("b", "r", "b", 3, 'param { name: "w" } param { name: "b" }')
        + _layer("loss", "ContrastiveLoss", "a b u", "loss")
        + _layer("quiet", "Silence", "v", ""),
        ["a", "b"],
    ),
    "parameter": (
        _layer("w", "Parameter", "", "w", "parameter_param { shape { dim: 3 } }")
        + _layer("s", "Scale", "x w", "s", "scale_param { axis: 1 }")
        + _ip("b", "s", "y", 4)
        + LOSS,
        ["y"],
    ),
    **{
        f"strict-shared-{kind.lower()}": (
            _layer("i", "DummyData", "", "c", "dummy_data_param { shape { dim: 4 dim: 3 } data_filler { value: 1 } }")
            + "".join(
                _layer(name, kind, "x c", name, f"{shared} recurrent_param {{ num_output: 4 {FILL} }}")
                for name in ("m", "n")
            )
            + _layer("sum", "Eltwise", "m n", "z")
            + _ip("b", "z", "y", 4, "")
            + LOSS,
            ["z", "y"],
        )
        for kind, shared in (
            ("LSTM", 'param { name: "w" } param { name: "b" } param { name: "h" }'),
            ("RNN", "".join(f'param {{ name: "{n}" }} ' for n in ("w", "b", "h", "o", "c"))),
        )
    },
    "unused-branch": (
        _ip("a", "x", "a", 5) + _ip("dead", "a", "dead", 3) + _ip("b", "a", "y", 4) + LOSS,
        ["y"],
    ),
    "googlenet-like": (
        _layer("c", "Convolution", "x", "c", f"convolution_param {{ num_output: 4 kernel_size: 1 {FILL} }}")
        + _layer("r", "ReLU", "c", "c")
        + _layer("n", "LRN", "c", "n")
        + _layer("c1", "Convolution", "n", "c1", f"convolution_param {{ num_output: 2 kernel_size: 3 pad: 1 {FILL} }}")
        + _layer("c2", "Convolution", "n", "c2", f"convolution_param {{ num_output: 2 kernel_size: 1 {FILL} }}")
        + _layer("p", "Pooling", "n", "p", "pooling_param { pool: MAX kernel_size: 3 pad: 1 stride: 1 }")
        + _layer("cat", "Concat", "c1 c2 p", "cat")
        + _layer("g", "Pooling", "cat", "g", "pooling_param { pool: AVE global_pooling: true }")
        + _ip("b", "g", "y", 4)
        + LOSS,
        ["c", "n", "cat", "g", "y"],
    ),
}

_STRICT = {
    "strict-clip": 'type: "Clip" clip_param { min: -0.3 max: 0.3 }',
    "strict-power": 'type: "Power" power_param { power: 1 scale: 3 shift: 1 }',
    "strict-power-2": 'type: "Power" power_param { power: 2 scale: 0.5 shift: 1 }',
    "strict-bnll": 'type: "BNLL"',
    "strict-relu": 'type: "ReLU" relu_param { negative_slope: -0.5 }',
    "strict-lrn": 'type: "LRN"',
    "strict-log": 'type: "Log" log_param { shift: 30 }',
    "strict-log-base": 'type: "Log" log_param { base: 3 scale: 0.5 shift: 20 }',
    "strict-mvn": 'type: "MVN"',
    "strict-mvn-across": 'type: "MVN" mvn_param { across_channels: true eps: 0.1 }',
    "strict-mvn-mean": 'type: "MVN" mvn_param { normalize_variance: false }',
}
_AFTER = {
    "strict-after-sigmoid": 'type: "Sigmoid"',
    "strict-after-tanh": 'type: "TanH"',
    "strict-after-elu": 'type: "ELU"',
    "strict-after-exp": 'type: "Exp"',
    "strict-after-swish": 'type: "Swish"',
    "strict-after-softmax": 'type: "Softmax"',
    "strict-after-mvn": 'type: "MVN"',
}
CONV = _layer("c", "Convolution", "x", "c", f"convolution_param {{ num_output: 4 kernel_size: 3 {FILL} }}")
for _name, _text in _STRICT.items():
    _conv = CONV.replace(FILL, f"{FILL} bias_term: false") if "MVN" in _text else CONV  # a bias would get rounding
    NETS[_name] = (_conv + f'layer {{ name: "l" bottom: "c" top: "c" {_text} }}\n' + _ip("b", "c", "y", 4) + LOSS, [])
for _name, _text in _AFTER.items():
    _scaled = (
        _layer("s", "Power", "h", "h", "power_param { scale: 2 }")
        .replace("Power", "Scale")
        .replace("power_param { scale: 2 }", "")
    )
    NETS[_name] = (
        CONV + f'layer {{ name: "l" bottom: "c" top: "h" {_text} }}\n' + _scaled + _ip("b", "h", "y", 4) + LOSS,
        [],
    )


def _case(name: str, net: str, diffs: list[str]) -> Case:
    return {
        "name": f"net-{name}",
        "net": DATA + net,
        "phase": "TRAIN",
        "inputs": {"x": ((4, 3, 5, 5), "normal", 1.0), "t": ((4,), "int", 2)},
        "passes": 2,
        "backward": True,
        "diffs": diffs,
        "keep_params": ["bn"],
        "strict": name.startswith("strict"),
        "tolerance": 2e-5,
    }


CASES = [_case(name, net, diffs) for name, (net, diffs) in NETS.items()]
