"""Shapes, work and memory without Caffe: what is beside the comparison with real Caffe."""

from __future__ import annotations

import re
from typing import Any

from proto_case import net_of, refused, solver_of

from caffe_on_grid.proto import forks, graph, lint_shapes, schema, shapes, sizing


def layer(kind: str, bottoms: str = "", tops: str = "", body: str = "", name: str = "") -> str:
    wires = [f'bottom: "{b}"' for b in bottoms.split()] + [f'top: "{t}"' for t in tops.split()]
    return f'layer {{ name: "{name or kind}" type: "{kind}" {" ".join(wires)} {body} }}\n'


def inputs(**given: tuple[int, ...]) -> str:
    dims = {name: "".join(f" dim: {size}" for size in shape) for name, shape in given.items()}
    return "".join(layer("Input", "", n, f"input_param {{ shape {{{d} }} }}", f"{n}_in") for n, d in dims.items())


def read(source: str, phase: int = schema.TRAIN) -> Any:
    return graph.filter_net(net_of(source), schema.NetState(phase=phase))


def infer(source: str, phase: int = schema.TRAIN, **given: tuple[int, ...]) -> shapes.NetShapes:
    return shapes.infer(read(source, phase), given)


def says(source: str, **given: tuple[int, ...]) -> str:
    return refused(lambda: infer(source, **given))


def conv(bottom: str, top: str, more: str = "", name: str = "conv") -> str:
    body = f"convolution_param {{ num_output: 4 kernel_size: 3 {more} }}"
    return layer("Convolution", bottom, top, body, name)


def pool(bottom: str, top: str, more: str = "", name: str = "pool") -> str:
    return layer("Pooling", bottom, top, f"pooling_param {{ kernel_size: 3 stride: 2 {more} }}", name)


BRANCHES = pool("x", "p") + conv("x", "c", "stride: 2")
JOIN = layer("Eltwise", "p c", "sum")


def check_shapes_hint_at_rounding() -> None:
    said = says(inputs(x=(1, 4, 8, 8)) + BRANCHES + JOIN)
    assert said == (
        "Caffe refuses layer 'Eltwise' (Eltwise) of p 1x4x4x4, c 1x4x3x3: all bottoms must have one shape, and "
        "bottom 1 differs from bottom 0; pooling rounds up and convolution down: "
        "'pool' ceil((8 + 2*0 - 3) / 2) + 1 = 4, 'conv' floor((8 + 2*0 - 3) / 2) + 1 = 3: "
        "set round_mode: FLOOR, or a pad"
    )
    assert "rounds" not in says(inputs(x=(1, 5, 9, 9)) + BRANCHES + JOIN)  # the channels differ, no rounding does
    assert infer(inputs(x=(1, 4, 8, 8)) + pool("x", "p", "round_mode: FLOOR") + conv("x", "c", "stride: 2") + JOIN)


def check_shapes_name_what_is_unknown() -> None:
    assert "(did you mean 'Pooling'?)" in says(inputs(x=(1,)) + layer("Poling", "x", "y"))
    assert "'DetectionOutput' (a layer of SSD Caffe, which Caffe 1.0 lacks)" in says(
        inputs(x=(1,)) + layer("DetectionOutput", "x", "y")
    )
    assert not set(forks.LAYERS) & set(shapes.RULES)
    data = layer("Data", "", "data label", 'data_param { source: "s" batch_size: 4 backend: LMDB }')
    assert says(data) == (
        "layer 'Data' (Data): nothing in the net tells the channels and height and width of its records: "
        "the shape of 'data', 'label' must be given"
    )
    assert infer(data, data=(4, 3, 8, 8)).blobs == {"data": (4, 3, 8, 8), "label": (4,)}
    cropped = data.replace("data_param", "transform_param { crop_size: 6 force_gray: true } data_param")
    assert infer(cropped).blobs["data"] == (4, 1, 6, 6)
    python = layer("Python", "data", "y", 'python_param { module: "m" layer: "L" }')
    assert "the shape of 'y' must be given" in says(cropped + python)
    assert infer(cropped + python, y=(2, 3)).blobs["y"] == (2, 3)
    assert "the shape of 'a' must be given" in says(layer("Input", "", "a"))
    images = layer("ImageData", "", "data label", "image_data_param { batch_size: 2 new_height: 5 new_width: 4 }")
    assert infer(images).blobs == {"data": (2, 3, 5, 4), "label": (2,)}
    windows = layer("WindowData", "", "d l", "window_data_param { batch_size: 2 } transform_param { crop_size: 5 }")
    assert infer(windows).blobs["d"] == (2, 3, 5, 5)


FORKS: tuple[tuple[str, str, dict[str, tuple[int, ...]], tuple[int, ...]], ...] = (
    ("Axpy", "", {"a": (2, 3, 1, 1), "x": (2, 3, 4, 5), "y": (2, 3, 4, 5)}, (2, 3, 4, 5)),
    ("ConvolutionDepthwise", "convolution_param { num_output: 3 kernel_size: 3 }", {"x": (2, 3, 8, 8)}, (2, 3, 6, 6)),
    ("DepthwiseConvolution", "convolution_param { num_output: 6 kernel_size: 3 }", {"x": (2, 3, 8, 8)}, (2, 6, 6, 6)),
    ("Interp", "interp_param { height: 9 width: 7 }", {"x": (2, 3, 4, 5)}, (2, 3, 9, 7)),
    ("Interp", "interp_param { zoom_factor: 2 }", {"x": (2, 3, 4, 5)}, (2, 3, 7, 9)),
    ("Interp", "interp_param { shrink_factor: 2 pad_end: -1 }", {"x": (2, 3, 8, 9)}, (2, 3, 4, 4)),
    ("Normalize", "norm_param { channel_shared: false }", {"x": (2, 3, 4, 5)}, (2, 3, 4, 5)),
    ("Permute", "permute_param { order: 0 order: 2 order: 3 }", {"x": (2, 3, 4, 5)}, (2, 4, 5, 3)),
    (
        "PriorBox",
        "prior_box_param { min_size: 30 max_size: 60 aspect_ratio: 2 aspect_ratio: 3 }",
        {"x": (2, 8, 4, 5), "i": (2, 3, 300, 300)},
        (1, 2, 4 * 5 * 6 * 4),
    ),
    ("ROIPooling", "roi_pooling_param { pooled_h: 7 pooled_w: 6 }", {"x": (1, 8, 9, 9), "r": (5, 5)}, (5, 8, 7, 6)),
    ("ReLU6", "", {"x": (2, 3)}, (2, 3)),
    ("Reorg", "reorg_param { stride: 2 }", {"x": (1, 4, 6, 8)}, (1, 16, 3, 4)),
    ("Reorg", "reorg_param { stride: 2 reverse: true }", {"x": (1, 16, 3, 4)}, (1, 4, 6, 8)),
    ("ShuffleChannel", "shuffle_channel_param { group: 3 }", {"x": (2, 6, 4, 4)}, (2, 6, 4, 4)),
    ("SmoothL1Loss", "", {"a": (4, 8), "b": (4, 8)}, ()),
    ("Upsample", "upsample_param { scale: 2 }", {"x": (1, 4, 3, 5), "m": (1, 4, 3, 5)}, (1, 4, 6, 10)),
)
FORKS_REFUSED = (
    ("Axpy", "", {"a": (2, 4), "x": (2, 3, 4), "y": (2, 3, 4)}, "one factor for each channel"),
    ("Interp", "", {"x": (2, 3, 4, 5)}, "it needs height and width"),
    ("Permute", "permute_param { order: 1 order: 1 }", {"x": (2, 3)}, "names an axis twice"),
    ("Permute", "permute_param { order: 2 }", {"x": (2, 3)}, "must name axes of 2x3"),
    ("ShuffleChannel", "shuffle_channel_param { group: 4 }", {"x": (2, 6)}, "a multiple of group 4"),
    ("Reorg", "reorg_param { stride: 2 }", {"x": (1, 4, 5, 8)}, "multiples of stride 2"),
    ("Upsample", "", {"x": (1, 4, 3, 5), "m": (1, 4, 3, 4)}, "the shape of bottom 0"),
    ("PriorBox", "", {"x": (2, 8, 4, 5), "i": (2, 3, 9, 9)}, "min_size must be given"),
    ("ROIPooling", "", {"x": (1, 8, 9, 9), "r": (5, 4)}, "5 values each"),
    ("SmoothL1Loss", "", {"a": (4, 8), "b": (4, 7)}, "as many values"),
)


def check_shapes_of_forks() -> None:
    for kind, body, given, wanted in FORKS:
        made = infer(inputs(**given) + layer(kind, " ".join(given), "top", body))
        assert made.blobs["top"] == wanted, (kind, made.blobs)
    assert {kind for kind, *_ in FORKS} == set(shapes.RULES) - set(shapes.CAFFE)
    for kind, body, given, rule in FORKS_REFUSED:
        assert rule in says(inputs(**given) + layer(kind, " ".join(given), "top", body)), kind


def check_shapes_count_work() -> None:
    ip = layer("InnerProduct", "x", "y", "inner_product_param { num_output: 5 }")
    assert infer(inputs(x=(2, 3, 4)) + ip).flops == 2 * 2 * 12 * 5
    grouped = infer(inputs(x=(2, 6, 8, 8)) + conv("x", "y", "group: 2").replace("num_output: 4", "num_output: 8"))
    assert grouped.flops == 2 * 2 * 8 * 6 * 6 * 3 * 9
    deconv = conv("x", "y").replace('"Convolution"', '"Deconvolution"')
    assert infer(inputs(x=(2, 6, 8, 8)) + deconv).flops == 2 * 2 * 6 * 8 * 8 * 4 * 9
    lstm = layer("LSTM", "x c", "y", "recurrent_param { num_output: 5 }")
    assert infer(inputs(x=(3, 2, 4), c=(3, 2)) + lstm).flops == 2 * 3 * 2 * 4 * 5 * (4 + 5)


def check_shapes_count_parameters_once() -> None:
    shared = 'param { name: "w" } inner_product_param { num_output: 3 bias_term: false }'
    two = layer("InnerProduct", "x", "a", shared, "one") + layer("InnerProduct", "a", "b", shared, "two")
    found = infer(inputs(x=(2, 3)) + two)
    assert (found.parameters, found.learnable) == (9, 9)
    frozen = 'param { name: "w" lr_mult: 0 } inner_product_param { num_output: 3 bias_term: false }'
    assert infer(inputs(x=(2, 3)) + two.replace(shared, frozen, 1)).learnable == 0
    normed = infer(inputs(x=(2, 3)) + layer("BatchNorm", "x", "y") + layer("Scale", "y", "y"))
    assert (normed.parameters, normed.learnable) == (3 + 3 + 1 + 3, 3)


def check_shapes_count_bytes() -> None:
    body = "inner_product_param { num_output: 4 bias_term: false }"
    source = (
        inputs(x=(2, 3)) + layer("InnerProduct", "x", "y", body) + layer("ReLU", "y", "y") + layer("Flatten", "y", "f")
    )
    found = {one.name: one for one in infer(source).layers}
    assert (found["InnerProduct"].activation_bytes, found["InnerProduct"].gradient_bytes) == (32, 32)
    assert found["x_in"].gradient_bytes == 0 and found["x_in"].activation_bytes == 24
    assert found["ReLU"].activation_bytes == found["Flatten"].activation_bytes == found["ReLU"].gradient_bytes == 0
    twice = {one.name: one for one in infer(source + layer("Eltwise", "f f", "e")).layers}
    assert twice["Flatten"].gradient_bytes == 2 * 32  # each user's copy has a gradient
    tested = infer(source, schema.TEST)
    assert tested.total("gradient_bytes") == tested.parameter_gradient_bytes == 0
    assert infer(source).bytes == 24 + 32 + 32 + 48 + 48
    column = infer(inputs(x=(2, 3, 8, 8)) + conv("x", "y", "bias_term: false")).total("buffer_bytes")
    assert column == 4 * 3 * 9 * 6 * 6  # one image's columns


def check_shapes_in_part() -> None:
    data = layer("Data", "", "data label", 'transform_param { crop_size: 8 } data_param { source: "s" batch_size: 4 }')
    nets = graph.SolverNets(read(data + conv("data", "c")), (read(data + conv("other", "c") + inputs(z=(1,))),))
    assert re.match(
        "TEST net 0: layer 'conv': no layer before it makes its bottom 'other'", refused(shapes.check, nets)
    )
    known, unknown = shapes.check(
        graph.SolverNets(nets.train, (read(data.replace("crop_size: 8", "") + conv("data", "c")),))
    )
    assert known.blobs["c"] == (4, 4, 6, 6) and known.unknown == ()
    assert unknown.unknown == ("Data", "conv") and unknown.layers == ()
    grey = layer("Reshape", "data", "r", "reshape_param { shape { dim: 4 dim: 64 } }")
    (found,) = shapes.check(graph.SolverNets(read(data + grey), ()))
    assert found.blobs["data"] == (4, 1, 8, 8)
    grey = grey.replace("64", "65")
    assert "layer 'Reshape' (Reshape) of data 4x3x8x8" in refused(shapes.check, graph.SolverNets(read(data + grey), ()))


def warned(source: str, solver: str = "", phase: int = schema.TRAIN) -> list[str]:
    net = read(source, phase)
    return lint_shapes.warnings(solver_of(solver), net, shapes.infer(net))


LINT = (
    (inputs(x=(1, 4, 9, 9)) + BRANCHES + JOIN, "joins 'pool', which rounds up, and 'conv', which rounds down"),
    (
        inputs(x=(2, 3)) + layer("Sigmoid", "x", "y") + layer("Dropout", "y", "y"),
        "works in place on the top of 'Sigmoid'",
    ),
    (inputs(x=(2, 3)) + layer("Power", "x", "x"), "Power in place has a wrong gradient"),
    (
        inputs(x=(2, 3), z=(2, 3)) + layer("Eltwise", "x z", "x"),
        "Eltwise in place overwrites what it reads: Caffe's numbers are wrong",
    ),
    (inputs(x=(2, 3, 4, 4)) + layer("MVN", "x", "x"), "MVN in place has a wrong gradient"),
    (inputs(x=(2, 3)) + layer("ReLU", "x", "x", "relu_param { negative_slope: -0.1 }"), "ReLU in place has a wrong"),
    (
        inputs(x=(2, 3)) + layer("Scale", "x", "y", "param { lr_mult: 0 } scale_param { bias_term: true }"),
        "1 param for 2 parameter blobs",
    ),
    (inputs(x=(1, 3)) + layer("BatchNorm", "x", "y"), "normalises over a single value"),
    (
        inputs(x=(1, 3, 4, 4))
        + conv("x", "y", 'weight_filler { type: "bilinear" }').replace('"Convolution"', '"Deconvolution"'),
        "adds all channels up",
    ),
)


def check_lint_of_shapes() -> None:
    for source, wanted in LINT:
        found = warned(source)
        assert len(found) == 1 and wanted in found[0] and "\n" not in found[0], (wanted, found)
    assert warned(inputs(x=(2, 3)) + layer("Sigmoid", "x", "y") + layer("Dropout", "y", "y"), "", schema.TEST) == []
    fine = (
        inputs(x=(2, 3, 8, 8))
        + conv("x", "c")
        + layer("ReLU", "c", "c")
        + pool("c", "p")
        + layer("BatchNorm", "p", "p")
    )
    assert warned(fine) == []
    large = inputs(x=(1, 30000)) + layer("InnerProduct", "x", "y", "inner_product_param { num_output: 30000 }")
    assert "larger than 2 GiB" in warned(large)[0]
    assert warned(large, "snapshot_format: HDF5") == []


def check_sizing() -> None:
    source = inputs(x=(100, 1000)) + layer("InnerProduct", "x", "y", "inner_product_param { num_output: 1000 }")
    train, test = infer(source), infer(source, schema.TEST)
    each = train.total("parameter_bytes")

    def of(solver: str, *tests: shapes.NetShapes, **more: int) -> dict[str, int]:
        made = sizing.estimate(solver_of(solver), train, tests, **more)
        assert made.mib == made.rank_mib + sum(i.bytes for i in made.feeders) // sizing.MIB
        assert len(list(made.lines())) == len(made.items) + len(made.feeders) + 1
        return {item.name: item.bytes for item in made.items}

    for kind, copies in {"SGD": 1, "Nesterov": 2, "AdaDelta": 4, "Adam": 3}.items():
        assert of(f'type: "{kind}"')["solver"] == copies * each
    assert of('regularization_type: "L1" weight_decay: 1')["solver"] == 2 * each
    assert of("", test)["parameters"] == each
    assert of("test_initialization: false", test)["parameters"] == 2 * each
    assert "MPI" not in of("") and of("", world=4)["exchange"] == each
    assert of("", world=4, bucket_mib=1)["exchange"] == sizing.MIB
    alone = sizing.estimate(solver_of(""), None, (test,))
    assert {item.name for item in alone.items} == {
        "base", "TEST net 0, blobs", "TEST net 0, buffers", "parameters", "allocator",
    }  # fmt: skip
    assert alone.complete
