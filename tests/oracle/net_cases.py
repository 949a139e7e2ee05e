"""Random nets of one layer (behind a Bias, so that gradients flow) and the numbers that both engines get.

Runs in both Pythons: numpy and the standard library only.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Case = dict[str, Any]
Shape = Sequence[int]


def _rng(case: Case, *parts: object) -> Any:
    return np.random.RandomState(zlib.crc32(repr((case["name"], parts)).encode()) & 0x7FFFFFFF)


def inputs(case: Case, at: int) -> dict[str, Any]:
    """Input values of pass `at`."""
    return {name: _values(_rng(case, at, name), *spec) for name, spec in case["inputs"].items()}


def _values(rng: Any, shape: Shape, kind: str, high: float) -> Any:
    """normal: N(0, high); int: 0..high−1; flag: 0 or 1; some: the same, the first 1; chance: (0.05, 1);

    steps: coarse values, so that ties happen.
    """
    shape = tuple(shape)
    if kind == "int":
        return rng.randint(0, int(high), shape).astype(np.float32)
    if kind == "flag":
        return (rng.rand(*shape) < 0.6).astype(np.float32)
    if kind == "some":
        return np.maximum(rng.rand(*shape) < 0.5, np.arange(shape[0]).reshape(-1, 1) == 0).astype(np.float32)
    if kind == "chance":
        return (rng.rand(*shape) * 0.95 + 0.05).astype(np.float32)
    if kind == "steps":
        return (rng.randint(-3, 4, shape) * 0.5).astype(np.float32)
    return np.asarray(rng.randn(*shape) * high, np.float32)


def new_params(case: Case, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Values to put into parameters before the first pass (BatchNorm's keep theirs)."""
    kept = case["keep_params"]
    return {
        key: np.asarray(_rng(case, key).randn(*shape) * 0.5, np.float32)
        for key, shape in shapes.items()
        if key.split("/")[0] not in kept
    }


def case(
    name: str,
    layer: str,
    flowing: Mapping[str, Any],
    fixed: Mapping[str, Any] = {},
    tops: Sequence[str] = ("y",),
    phase: str = "TRAIN",
    passes: int = 2,
    backward: bool = True,
    loss: bool = False,
    keep_params: Sequence[str] = (),
) -> Case:
    """`layer` over bottoms that carry gradients (`flowing`) and others; value: (shape, kind, high)."""
    text = ""
    given = {}
    for blob, spec in flowing.items():
        text += _input(f"{blob}_in", spec[0])
        text += f'layer {{ name: "pre_{blob}" type: "Bias" bottom: "{blob}_in" top: "{blob}" '
        text += "bias_param { axis: 0 num_axes: 0 } }\n"
        given[f"{blob}_in"] = spec
    for blob, spec in fixed.items():
        text += _input(blob, spec[0])
        given[blob] = spec
    heads = [] if loss or not backward else list(tops)
    return {
        "name": name,
        "net": text + layer + "".join(_head(top) for top in heads),
        "phase": phase,
        "inputs": given,
        "passes": passes,
        "backward": backward,
        "diffs": list(flowing) if backward else [],
        "keep_params": list(keep_params),
    }


def _head(top: str) -> str:
    """A loss over a top, whose gradient is different for each value."""
    return (
        f'layer {{ name: "cube_{top}" type: "Power" bottom: "{top}" top: "cube_{top}" '
        f"power_param {{ power: 3 scale: 0.7 shift: 0.4 }} loss_weight: 0.5 }}\n"
    )


def _input(name: str, shape: Shape) -> str:
    dims = " ".join(f"dim: {d}" for d in shape)
    return f'layer {{ name: "in_{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'


def one(kind: str, params: str = "", bottoms: str = "x", tops: str = "y", more: str = "") -> str:
    """A layer's text."""
    ends = "".join(f' bottom: "{b}"' for b in bottoms.split()) + "".join(f' top: "{t}"' for t in tops.split())
    return f'layer {{ name: "l" type: "{kind}"{ends} {params} {more} }}\n'


def _shape(r: random.Random, low: int = 2, high: int = 4, top: int = 6) -> tuple[int, ...]:
    return tuple(r.randint(1, top) for _ in range(r.randint(low, high)))


def _f(r: random.Random, low: float, high: float) -> float:
    return round(r.uniform(low, high), 3)


def _axis(r: random.Random, axis: int, rank: int) -> int:
    return axis if r.random() < 0.6 else axis - rank


def convolution(r: random.Random, name: str, kind: str = "Convolution") -> Case:
    """One to three spatial axes, groups, dilation, every axis."""
    spatial = r.choice([1, 2, 2, 2, 3])
    group = r.choice([1, 1, 2, 3])
    channels, outputs = group * r.randint(1, 2), group * r.randint(1, 3)
    kernel = [r.randint(1, 3) for _ in range(spatial)]
    stride, pad, dilation = ([r.randint(a, b) for _ in range(spatial)] for a, b in ((1, 3), (0, 2), (1, 2)))
    extent = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    low = [max(1, e - 2 * p) for e, p in zip(extent, pad)]
    if kind == "Deconvolution":
        low = [1 + (2 * p + s - e) // s if 2 * p >= e else 1 for e, p, s in zip(extent, pad, stride)]
    sizes = [r.randint(n, n + 4) for n in low]
    batch = [r.randint(1, 2) for _ in range(r.choice([1, 1, 1, 2]))] if kind != "Im2col" or spatial != 2 else [2]
    axis = len(batch) if r.random() < 0.5 else -(spatial + 1)
    fields = [f"{n}: {v}" for n, vs in (("kernel_size", kernel), ("stride", stride), ("pad", pad)) for v in vs]
    fields += [f"dilation: {v}" for v in dilation]
    if spatial == 2 and r.random() < 0.3:
        fields = [f"kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride_h: {stride[0]} stride_w: {stride[1]}"]
        fields += [f"pad_h: {pad[0]} pad_w: {pad[1]}", *(f"dilation: {v}" for v in dilation)]
    learned = f"num_output: {outputs} group: {group} bias_term: {r.choice(['true', 'false'])}"
    learned += ' weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -1 max: 1 }'
    own = "" if kind == "Im2col" else learned
    text = f"convolution_param {{ {' '.join(fields)} axis: {axis} {own} }}"
    return case(name, one(kind, text), {"x": ((*batch, channels, *sizes), "normal", 1)})


def deconvolution(r: random.Random, name: str) -> Case:
    return convolution(r, name, "Deconvolution")


def im2col(r: random.Random, name: str) -> Case:
    return convolution(r, name, "Im2col")


def pooling(r: random.Random, name: str) -> Case:
    """Odd sizes, pads, strides, both roundings, masks; windows outside the image are left out (undefined in Caffe)."""
    method = r.choice(["MAX", "AVE"])
    kernel = [r.randint(1, 5), r.randint(1, 5)]
    pad = [r.randint(0, k - 1) if r.random() < 0.5 else 0 for k in kernel]
    stride = [r.randint(1, k) for k in kernel]
    size = [r.randint(max(1, k - 2 * p), k + 7) for k, p in zip(kernel, pad)]
    fields = f"kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride_h: {stride[0]} stride_w: {stride[1]}"
    fields += f" pad_h: {pad[0]} pad_w: {pad[1]} round_mode: {r.choice(['CEIL', 'FLOOR'])}"
    if r.random() < 0.15:
        fields = "global_pooling: true"
    mask = method == "MAX" and r.random() < 0.3
    layer = one("Pooling", f"pooling_param {{ pool: {method} {fields} }}", tops="y m" if mask else "y")
    kind = r.choice(["normal", "steps"])
    return case(name, layer, {"x": ((2, 2, *size), kind, 1)}, tops=["y"])


def spp(r: random.Random, name: str) -> Case:
    height = r.randint(1, 3)
    text = f"spp_param {{ pyramid_height: {height} pool: {r.choice(['MAX', 'AVE'])} }}"
    size = [r.randint(9, 13), r.randint(9, 13)]
    return case(name, one("SPP", text), {"x": ((2, 2, *size), "normal", 1)})


def lrn(r: random.Random, name: str) -> Case:
    fields = f"local_size: {r.choice([1, 3, 5, 7])} alpha: {_f(r, 0.01, 2)} beta: {r.choice([0.75, 0.5, 1.1])}"
    fields += f" k: {r.choice([1, 2])}"
    region = r.choice(["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
    shape = (2, r.randint(1, 8), r.randint(1, 6), r.randint(1, 6))
    return case(name, one("LRN", f"lrn_param {{ {fields} norm_region: {region} }}"), {"x": (shape, "normal", 1)})


def batch_norm(r: random.Random, name: str) -> Case:
    fields = f"moving_average_fraction: {r.choice([0.999, 0.9, 0.5])} eps: {r.choice([1e-5, 0.01])}"
    if r.random() < 0.4:
        fields += f" use_global_stats: {r.choice(['true', 'false'])}"
    phase = r.choice(["TRAIN", "TRAIN", "TEST"])
    shape = (r.randint(6, 9), *_shape(r, 1, 3))  # of few values the gradient is what cancelling leaves
    top = r.choice(["x", "y"])
    scale = f'layer {{ name: "s" type: "Scale" bottom: "{top}" top: "{top}" scale_param {{ bias_term: true }} }}'
    text = one("BatchNorm", f"batch_norm_param {{ {fields} }}", tops=top) + (scale if r.random() < 0.5 else "")
    flow = {"x": (shape, "normal", 2)}
    return case(name, text, flow, tops=[top], phase=phase, passes=3, keep_params=["l"])


def scale(r: random.Random, name: str, kind: str = "Scale") -> Case:
    """Every axis and number of axes; one or two bottoms."""
    shape = _shape(r)
    start = r.randint(0, len(shape) - 1)
    length = r.randint(0, len(shape) - start)
    axis = _axis(r, start, len(shape))
    field = kind.lower() + "_param"
    bias = f"bias_term: {r.choice(['true', 'false'])}" if kind == "Scale" else ""
    if r.random() < 0.4 and length:
        other = shape[start : start + length]
        text = one(kind, f"{field} {{ axis: {axis} {bias} }}", "x z")
        return case(name, text, {"x": (shape, "normal", 1), "z": (other, "normal", 1)})
    axes = -1 if start + length == len(shape) and r.random() < 0.5 and length else length
    top = r.choice(["x", "y"])
    text = one(kind, f"{field} {{ axis: {axis} num_axes: {axes} {bias} }}", "x", top)
    return case(name, text, {"x": (shape, "normal", 1)}, tops=[top])


def bias(r: random.Random, name: str) -> Case:
    return scale(r, name, "Bias")


def inner_product(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    axis = _axis(r, r.randint(0, len(shape) - 1), len(shape))
    fields = f"num_output: {r.randint(1, 5)} axis: {axis} transpose: {r.choice(['true', 'false'])}"
    fields += f' bias_term: {r.choice(["true", "false"])} weight_filler {{ type: "gaussian" std: 0.1 }}'
    return case(name, one("InnerProduct", f"inner_product_param {{ {fields} }}"), {"x": (shape, "normal", 1)})


def embed(r: random.Random, name: str) -> Case:
    rows = r.randint(2, 6)
    fields = f"num_output: {r.randint(1, 5)} input_dim: {rows} bias_term: {r.choice(['true', 'false'])}"
    return case(name, one("Embed", f"embed_param {{ {fields} }}", "i"), {}, {"i": (_shape(r, 1, 3), "int", rows)})


_ELEMENTWISE: dict[str, Callable[[random.Random], str]] = {
    "ReLU": lambda r: f"relu_param {{ negative_slope: {r.choice([0, 0, 0.1, 1.5])} }}",
    "ELU": lambda r: f"elu_param {{ alpha: {_f(r, 0.1, 2)} }}",
    "Sigmoid": lambda r: "",
    "TanH": lambda r: "",
    "BNLL": lambda r: "",
    "AbsVal": lambda r: "",
    "Power": lambda r: (
        f"power_param {{ power: {r.choice([0, 1, 2, 3])} scale: {r.choice([0, 1, -0.5])} shift: {_f(r, 1, 2)} }}"
    ),
    "Exp": lambda r: f"exp_param {{ base: {r.choice([-1, 2, 0.5])} scale: {_f(r, -1, 1)} shift: {_f(r, -1, 1)} }}",
    "Log": lambda r: f"log_param {{ base: {r.choice([-1, 2, 10])} scale: 0.1 shift: {_f(r, 2, 4)} }}",
    "Clip": lambda r: f"clip_param {{ min: {r.choice([-1, -0.5])} max: {r.choice([0.5, 2])} }}",
    "Swish": lambda r: f"swish_param {{ beta: {r.choice([1, 0.5, -2])} }}",
    "PReLU": lambda r: f"prelu_param {{ channel_shared: {r.choice(['true', 'false'])} }}",
    "Dropout": lambda r: f"dropout_param {{ dropout_ratio: {_f(r, 0.1, 0.9)} }}",
}
_SAFE_IN_PLACE = frozenset({"ELU", "Sigmoid", "TanH", "PReLU", "Exp", "Swish", "Dropout"})


def elementwise(r: random.Random, name: str) -> Case:
    """Every activation, with values on its kinks, in place where Caffe's gradient is right there."""
    kind = r.choice(sorted(_ELEMENTWISE))
    top = r.choice(["x", "y"]) if kind in _SAFE_IN_PLACE else "y"
    text = one(kind, _ELEMENTWISE[kind](r), tops=top)
    spec = (_shape(r), r.choice(["normal", "steps"]), 1.5)
    return case(name, text, {"x": spec}, tops=[top], phase=r.choice(["TRAIN", "TRAIN", "TEST"]))


def threshold(r: random.Random, name: str) -> Case:
    text = one("Threshold", f"threshold_param {{ threshold: {r.choice([0, 0.5, -1])} }}")
    return case(name, text, {}, {"x": (_shape(r), "steps", 1)}, backward=False)


def softmax(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    axis = _axis(r, r.randint(0, len(shape) - 1), len(shape))
    top = r.choice(["x", "y"])
    return case(
        name, one("Softmax", f"softmax_param {{ axis: {axis} }}", tops=top), {"x": (shape, "normal", 3)}, tops=[top]
    )


def mvn(r: random.Random, name: str) -> Case:
    fields = f"normalize_variance: {r.choice(['true', 'true', 'false'])} across_channels: {r.choice(['true', 'false'])}"
    shape = (r.randint(1, 3), r.randint(1, 3), r.randint(2, 5), r.randint(2, 5))
    if "across_channels: true" in fields and r.random() < 0.5:
        shape = (2, *(r.randint(6, 9) for _ in range(r.randint(1, 2))))  # of few values a gradient is what cancels
    text = one("MVN", f"mvn_param {{ {fields} eps: {r.choice([1e-9, 0.1])} }}")
    return case(name, text, {"x": (shape, "normal", 2)})


def eltwise(r: random.Random, name: str) -> Case:
    """Ties among two and three bottoms."""
    names = "x z w"[: r.choice([3, 5])]
    operation = r.choice(["SUM", "PROD", "MAX", "MAX"])
    fields = f"operation: {operation}"
    if operation == "SUM" and r.random() < 0.6:
        fields += "".join(f" coeff: {_f(r, -2, 2)}" for _ in names.split())
    if operation == "PROD":
        fields += f" stable_prod_grad: {r.choice(['true', 'false'])}"
    spec = (_shape(r, 1, 4), "normal" if operation == "PROD" else "steps", 1)
    return case(name, one("Eltwise", f"eltwise_param {{ {fields} }}", names), dict.fromkeys(names.split(), spec))


def concat(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    at = r.randint(0, len(shape) - 1)
    names = ["x", "z", "w"][: r.randint(1, 3)]
    specs = {n: ((*shape[:at], r.randint(1, 4), *shape[at + 1 :]), "normal", 1) for n in names}
    field = f"concat_dim: {at}" if r.random() < 0.2 else f"axis: {_axis(r, at, len(shape))}"
    return case(name, one("Concat", f"concat_param {{ {field} }}", " ".join(names)), specs)


def slice_(r: random.Random, name: str) -> Case:
    shape = list(_shape(r))
    at = r.randint(0, len(shape) - 1)
    tops = ["a", "b", "c"][: r.randint(1, 3)]
    shape[at] = len(tops) * r.randint(1, 3)
    field = f"axis: {_axis(r, at, len(shape))}"
    if r.random() < 0.5:
        shape[at] = r.randint(len(tops), 7)
        points = sorted(r.sample(range(1, shape[at]), len(tops) - 1))
        field += "".join(f" slice_point: {p}" for p in points)
        if len(tops) == 1:
            field = f"axis: {at}"
    layer = one("Slice", f"slice_param {{ {field} }}", tops=" ".join(tops))
    return case(name, layer, {"x": (shape, "normal", 1)}, tops=tops)


def flatten(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    start = r.randint(0, len(shape) - 1)
    end = r.randint(start, len(shape) - 1)
    fields = f"axis: {_axis(r, start, len(shape))} end_axis: {_axis(r, end, len(shape))}"
    return case(name, one("Flatten", f"flatten_param {{ {fields} }}"), {"x": (shape, "normal", 1)})


def reshape(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    start = r.randint(0, len(shape))
    end = r.randint(start, len(shape))
    dims: list[int] = list(shape[start:end])
    if dims and r.random() < 0.7:
        dims[r.randrange(len(dims))] = -1
    elif r.random() < 0.5:
        dims.insert(r.randint(0, len(dims)), 1)
    dims = [
        0 if start + i < len(shape) and d == shape[start + i] and r.random() < 0.5 else d for i, d in enumerate(dims)
    ]
    axis = start if r.random() < 0.5 else start - len(shape) - 1
    text = " ".join(f"dim: {d}" for d in dims)
    fields = f"shape {{ {text} }} axis: {axis} num_axes: {end - start}"
    text = one("Reshape", f"reshape_param {{ {fields} }}", more="") + one(
        "Power", "power_param { scale: 2 }", "y", "q"
    ).replace('"l"', '"p"')
    return case(name, text, {"x": (shape, "normal", 1)}, tops=["q"])


def crop(r: random.Random, name: str) -> Case:
    shape = tuple(r.randint(2, 6) for _ in range(r.randint(2, 4)))
    at = r.randint(0, len(shape) - 1)
    wanted = tuple(n if i < at else r.randint(1, n) for i, n in enumerate(shape))
    room = [n - w for n, w in zip(shape[at:], wanted[at:])]
    offsets = r.choice([[], [r.randint(0, min(room))], [r.randint(0, n) for n in room]])
    fields = f"axis: {_axis(r, at, len(shape))}" + "".join(f" offset: {o}" for o in offsets)
    return case(
        name,
        one("Crop", f"crop_param {{ {fields} }}", "x z"),
        {"x": (shape, "normal", 1)},
        {"z": (wanted, "normal", 1)},
    )


def tile(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    axis = _axis(r, r.randint(0, len(shape) - 1), len(shape))
    return case(
        name, one("Tile", f"tile_param {{ axis: {axis} tiles: {r.randint(1, 4)} }}"), {"x": (shape, "normal", 1)}
    )


def reduction(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    axis = _axis(r, r.randint(0, len(shape) - 1), len(shape))
    fields = f"operation: {r.choice(['SUM', 'ASUM', 'SUMSQ', 'MEAN'])} axis: {axis} coeff: {r.choice([1, -0.5, 2.3])}"
    return case(name, one("Reduction", f"reduction_param {{ {fields} }}"), {"x": (shape, "steps", 1)})


def argmax(r: random.Random, name: str) -> Case:
    shape = _shape(r, 1, 4)
    axis = r.randint(0, len(shape) - 1)
    size = int(np.prod(shape[1:]))
    fields = f"out_max_val: {r.choice(['true', 'false'])}"
    if r.random() < 0.6:
        size = shape[axis]
        fields += f" axis: {_axis(r, axis, len(shape))}"
    fields += f" top_k: {r.randint(1, size)}"
    return case(name, one("ArgMax", f"argmax_param {{ {fields} }}"), {}, {"x": (shape, "steps", 1)}, backward=False)


def batch_reindex(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    fixed = {"i": ((r.randint(1, 7),), "int", shape[0])}
    return case(name, one("BatchReindex", bottoms="x i"), {"x": (shape, "normal", 1)}, fixed)


def filter_(r: random.Random, name: str) -> Case:
    shape = (r.randint(2, 6), *_shape(r, 1, 3))
    two = r.random() < 0.5
    flow = {"x": (shape, "normal", 1), **({"z": ((shape[0], 3), "normal", 1)} if two else {})}
    text = one("Filter", bottoms="x z f" if two else "x f", tops="y u" if two else "y")
    return case(name, text, flow, {"f": ((shape[0], 1), "some", 1)}, tops=["y", "u"] if two else ["y"])


def _norm(r: random.Random, ignore: int) -> str:
    fields = f"ignore_label: {ignore}" if r.random() < 0.6 else ""
    choice = r.choice(["", "FULL", "VALID", "BATCH_SIZE", "NONE", "normalize: true", "normalize: false"])
    fields += f" {choice}" if ":" in choice or not choice else f" normalization: {choice}"
    return f"loss_param {{ {fields} }}"


def softmax_loss(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    at = r.randint(1, len(shape) - 1)
    labels = (*shape[:at], *shape[at + 1 :])
    text = f"softmax_param {{ axis: {_axis(r, at, len(shape))} }} {_norm(r, 0)}"
    weight = r.choice(["", "loss_weight: 2.5"])  # two tops: this Caffe refuses every number of loss weights
    flow, fixed = {"x": (shape, "normal", 3)}, {"t": (labels, "int", shape[at])}
    return case(name, one("SoftmaxWithLoss", text, "x t", "y", weight), flow, fixed, loss=True)


def infogain(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    at = r.randint(1, len(shape) - 1)
    n = shape[at]
    norm = _norm(r, 0)
    while "normalize" in norm:
        norm = _norm(r, 0)
    text = f"infogain_loss_param {{ axis: {_axis(r, at, len(shape))} }} {norm}"
    labels = (*shape[:at], *shape[at + 1 :])
    fixed = {"t": (labels, "int", n), "h": ((1, 1, n, n), "chance", 1)}
    return case(name, one("InfogainLoss", text, "x t h"), {"x": (shape, "normal", 2)}, fixed, loss=True)


def sigmoid_loss(r: random.Random, name: str) -> Case:
    shape = _shape(r)
    kind = r.choice([("int", 2), ("chance", 1)])
    text = one("SigmoidCrossEntropyLoss", _norm(r, 0 if kind[0] == "int" else -1), "x t", more="loss_weight: 0.5")
    return case(name, text, {"x": (shape, "normal", 3)}, {"t": (shape, *kind)}, loss=True)


def plain_losses(r: random.Random, name: str) -> Case:
    """Euclidean, Hinge, MultinomialLogistic and Contrastive."""
    kind = r.choice(["EuclideanLoss", "HingeLoss", "MultinomialLogisticLoss", "ContrastiveLoss"])
    shape = (r.randint(1, 6), r.randint(2, 5))
    if kind == "EuclideanLoss":
        spec = ((*shape, 2), "normal", 1)
        return case(name, one(kind, bottoms="x z"), {"x": spec, "z": spec}, loss=True)
    if kind == "ContrastiveLoss":
        text = f"contrastive_loss_param {{ margin: {_f(r, 0.5, 4)} legacy_version: {r.choice(['true', 'false'])} }}"
        flow = {"x": (shape, "normal", 1), "z": (shape, "normal", 1)}
        return case(name, one(kind, text, "x z t"), flow, {"t": ((shape[0],), "flag", 1)}, loss=True)
    text = f"hinge_loss_param {{ norm: {r.choice(['L1', 'L2'])} }}" if kind == "HingeLoss" else ""
    spec = (shape, "steps", 1) if kind == "HingeLoss" else (shape, "chance", 1)
    return case(name, one(kind, text, "x t"), {"x": spec}, {"t": ((shape[0],), "int", shape[1])}, loss=True)


def accuracy(r: random.Random, name: str) -> Case:
    shape = tuple(r.randint(2, 6) for _ in range(r.randint(2, 4)))
    at = r.randint(0, len(shape) - 1)
    fields = f"top_k: {r.randint(1, shape[at])} axis: {_axis(r, at, len(shape))}"
    fields += " ignore_label: 1" if r.random() < 0.5 else ""
    fixed = {"x": (shape, "steps", 1), "t": ((*shape[:at], *shape[at + 1 :]), "int", shape[at])}
    tops = r.choice(["y", "y c"])
    text = one("Accuracy", f"accuracy_param {{ {fields} }}", "x t", tops)
    return case(name, text, {}, fixed, phase="TEST", backward=False)


def recurrent(r: random.Random, name: str) -> Case:
    """State carried over passes, static input, exposed states."""
    kind, states = r.choice([("LSTM", 2), ("RNN", 1)])
    steps, streams, size = r.randint(1, 4), r.randint(1, 3), r.randint(1, 4)
    flow: dict[str, Any] = {"x": ((steps, streams, r.randint(1, 4)), "normal", 1)}
    bottoms, tops = "x c", "y"
    if r.random() < 0.4:
        flow["s"] = ((streams, r.randint(1, 3)), "normal", 1)
        bottoms += " s"
    exposed = r.random() < 0.4
    if exposed:
        names = ["h0", "c0"][:states]
        flow.update({n: ((1, streams, size), "normal", 1) for n in names})
        bottoms += " " + " ".join(names)
        tops += " hT cT"[: 3 * states]
    fields = f'num_output: {size} weight_filler {{ type: "uniform" min: -0.5 max: 0.5 }} '
    fields += 'bias_filler { type: "gaussian" std: 0.1 }'
    text = one(kind, f"recurrent_param {{ {fields} expose_hidden: {str(exposed).lower()} }}", bottoms, tops)
    fixed = {"c": ((steps, streams), "flag", 1)}
    return case(name, text, flow, fixed, tops=tops.split(), passes=3)


def lstm_unit(r: random.Random, name: str) -> Case:
    n, d = r.randint(1, 4), r.randint(1, 4)
    flow = {"x": ((1, n, d), "normal", 1), "z": ((1, n, 4 * d), "normal", 1)}
    return case(name, one("LSTMUnit", "", "x z c", "y h"), flow, {"c": ((1, n), "flag", 1)}, tops=["y", "h"])


def dummy_data(r: random.Random, name: str) -> Case:
    text = """layer { name: "d" type: "DummyData" top: "a" top: "b" dummy_data_param {
      shape { dim: 2 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" std: 2 } data_filler { value: 3 } } }
      layer { name: "e" type: "DummyData" top: "f" dummy_data_param { num: 2 channels: 1 height: 2 width: 3
      data_filler { type: "uniform" } } }"""
    return case(name, text, {}, backward=False)


FAMILIES: dict[str, Callable[[random.Random, str], Case]] = {
    f.__name__: f
    for f in (
        convolution, deconvolution, im2col, pooling, spp, lrn, batch_norm, scale, bias, inner_product, embed,
        elementwise, threshold, softmax, mvn, eltwise, concat, slice_, flatten, reshape, crop, tile, reduction, argmax,
        batch_reindex, filter_, softmax_loss, infogain, sigmoid_loss, plain_losses, accuracy, recurrent, lstm_unit,
        dummy_data,
    )
}  # fmt: skip
"""Name → maker of one random case."""


def draw(count: int, seed: int = 1) -> list[Case]:
    """`count` cases of each family."""
    return [
        make(random.Random(f"{seed}/{name}/{i}"), f"{name}-{i}")
        for name, make in FAMILIES.items()
        for i in range(count)
    ]
