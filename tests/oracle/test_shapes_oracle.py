"""The shape rules against real Caffe: every type, example and golden layer, random nets, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapes_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapes_cases import inputs, layer

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import graph, schema, shapes, text, upgrade

pytestmark = pytest.mark.runtime
HERE = Path(__file__).resolve().parent
PHASES = {"TRAIN": schema.TRAIN, "TEST": schema.TEST}
RECORDS = {"lenet": (1, 28, 28), "cifar10": (3, 32, 32), "caffenet": (3, 227, 227)}


@pytest.fixture(scope="module")
def ask(runtime: Path, runtime_env: dict[str, str], tmp_path_factory):
    """`ask(prototxt, phase, forward)` → what real Caffe makes of it: rows of layers (splits left out), or its words."""
    process = subprocess.Popen(
        [str(runtime / "bin" / "python"), str(HERE / "shapes_in_caffe.py")],
        cwd=tmp_path_factory.mktemp("shapes"),
        env=runtime_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def put(prototxt: str, phase: str = "TRAIN", forward: bool = False) -> Any:
        process.stdin.write(json.dumps([prototxt, phase, forward]) + "\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
        added = re.compile(r".+_split$")
        return found.get("refused") or [row for row in found["layers"] if not added.fullmatch(row[0])]

    yield put
    process.stdin.close()
    process.wait(20)
    process.stdout.close()


def read(prototxt: str, phase: str = "TRAIN") -> Any:
    net = upgrade.upgrade_net(text.parse(schema.NetParameter, prototxt, "net"), "net")
    return graph.filter_net(net, schema.NetState(phase=PHASES[phase]))


def rows(found: shapes.NetShapes) -> list[Any]:
    return [
        [one.name, one.type, list(one.tops), [list(s) for s in one.top_shapes], [list(s) for s in one.param_shapes]]
        for one in found.layers
    ]


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize("name", list(shapes_cases.ACCEPTED))
def test_caffe_makes_the_same_shapes(ask, name: str, phase: str) -> None:
    prototxt = shapes_cases.ACCEPTED[name]
    assert rows(shapes.infer(read(prototxt, phase))) == ask(prototxt, phase)


@pytest.mark.parametrize("name", list(shapes_cases.REFUSED))
def test_caffe_refuses_it_too(ask, name: str) -> None:
    words = ask(shapes_cases.REFUSED[name], forward=True)
    assert isinstance(words, str), words
    with pytest.raises(ConfigError, match="layer '") as error:
        shapes.infer(read(shapes_cases.REFUSED[name]))
    assert "\n" not in str(error.value)


def test_every_type_of_caffe_has_a_rule(in_runtime) -> None:
    program = "import caffe; print(*caffe.layer_type_list())"
    types = set(in_runtime(["-c", program]).stdout.split())
    assert types == set(shapes.CAFFE) and len(types) == 61
    made = {one.type for net in shapes_cases.ACCEPTED.values() for one in read(net).layer}
    assert types - made == {"Data", "HDF5Data", "ImageData", "WindowData", "Python"}


def example_nets(root: Path) -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(root)), phase)
        for path in sorted(root.glob("examples/*/*train_test.prototxt"))
        for phase in PHASES
    ]


@pytest.mark.parametrize(("path", "phase"), example_nets(HERE.parent.parent))
def test_examples(ask, root: Path, path: str, phase: str) -> None:
    net = read((root / path).read_text(), phase)
    record = RECORDS.get(Path(path).parent.name, (3, 224, 224))
    sizes = {"data": (2, *record), "label": (2,)}
    assert rows(shapes.infer(net, {"data": sizes["data"]})) == [
        [name, {"Input": "Data"}.get(kind, kind), *rest]
        for name, kind, *rest in ask(text.render(bare(graph.replace_data(net, sizes))), phase)
    ]


def bare(net: Any) -> Any:
    """Without the rules, by which it is filtered already."""
    for one in net.layer:
        one.ClearField("include")
        one.ClearField("exclude")
    return net


def test_golden_layers(ask, root: Path) -> None:
    cases = sorted((root / "tests" / "golden" / "data" / "layers").glob("*.npz"))
    for path in cases:
        with np.load(path) as case:
            prototxt, phase = str(case["prototxt"]), str(case["phase"])
            assert rows(shapes.infer(read(prototxt, phase))) == ask(prototxt, phase), path.name
    assert len(cases) > 80


SMALL, AXIS = st.integers(1, 4), st.integers(-4, 4)


def field(name: str, values: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    """The field with a value, or nothing."""
    return st.one_of(st.just(""), values.map(lambda value: f" {name}: {value}"))


def fields(message: str, *strategies: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*strategies).map(lambda parts: f"{message} {{{''.join(parts)} }}")


KERNEL = st.integers(1, 5).map(lambda k: f" kernel_size: {k}")
WINDOW = (KERNEL, field("stride", st.integers(1, 4)), field("pad", st.integers(0, 2)))
DIM = st.sampled_from([-1, 0, 1, 2, 3, 4, 6])
ONE = {
    "Convolution": fields(
        "convolution_param",
        *WINDOW,
        SMALL.map(lambda n: f" num_output: {n}"),
        field("group", st.integers(1, 2)),
        field("dilation", st.integers(1, 2)),
        field("axis", AXIS),
        st.sampled_from(["", " bias_term: false"]),
    ),
    "Deconvolution": fields(
        "convolution_param", *WINDOW, SMALL.map(lambda n: f" num_output: {n}"), field("group", st.integers(1, 2))
    ),
    "Im2col": fields("convolution_param", *WINDOW, field("axis", AXIS)),
    "Pooling": fields(
        "pooling_param",
        *WINDOW,
        st.sampled_from(["", " pool: AVE", " round_mode: FLOOR", " pool: AVE round_mode: FLOOR"]),
    ),
    "InnerProduct": fields("inner_product_param", SMALL.map(lambda n: f" num_output: {n}"), field("axis", AXIS)),
    "Flatten": fields("flatten_param", field("axis", AXIS), field("end_axis", AXIS)),
    "Reshape": fields(
        "reshape_param",
        st.lists(DIM, max_size=4).map(lambda dims: " shape {" + "".join(f" dim: {d}" for d in dims) + " }"),
        field("axis", AXIS),
        field("num_axes", st.integers(-1, 2)),
    ),
    "Softmax": fields("softmax_param", field("axis", AXIS)),
    "Scale": fields(
        "scale_param",
        field("axis", AXIS),
        field("num_axes", st.integers(-1, 3)),
        st.sampled_from(["", " bias_term: true"]),
    ),
    "Bias": fields("bias_param", field("axis", AXIS), field("num_axes", st.integers(-1, 3))),
    "BatchNorm": st.just(""),
    "PReLU": st.just(""),
    "MVN": st.just(""),
    "LRN": fields("lrn_param", field("local_size", st.integers(1, 5))),
    "Tile": fields("tile_param", SMALL.map(lambda n: f" tiles: {n}"), field("axis", AXIS)),
    "Reduction": fields("reduction_param", field("axis", AXIS)),
    "ArgMax": fields(
        "argmax_param",
        field("axis", AXIS),
        field("top_k", st.integers(1, 3)),
        st.sampled_from(["", " out_max_val: true"]),
    ),
    "SPP": fields("spp_param", st.integers(1, 3).map(lambda n: f" pyramid_height: {n}")),
    "Slice": fields("slice_param", field("axis", AXIS), field("slice_point", st.integers(1, 4))),
}
TWO = {
    "Eltwise": st.just(""),
    "Concat": fields("concat_param", field("axis", AXIS)),
    "Crop": fields("crop_param", field("axis", AXIS), field("offset", st.integers(0, 2))),
    "Scale": fields("scale_param", field("axis", AXIS)),
    "EuclideanLoss": st.just(""),
    "SoftmaxWithLoss": fields("softmax_param", field("axis", AXIS)),
    "Accuracy": fields("accuracy_param", field("axis", AXIS)),
    "BatchReindex": st.just(""),
}


@st.composite
def nets(draw: st.DrawFn) -> str:
    """Two inputs, a few layers over what is there, and often a join."""
    shape = st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 9]), min_size=draw(st.sampled_from([4, 4, 4, 1])), max_size=5)
    first = tuple(draw(shape))
    second = first if draw(st.booleans()) else tuple(draw(shape))
    made, net = ["a", "b"], inputs(a=first, b=second)
    for at in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(sorted(ONE)))
        tops = f"t{at} u{at}" if kind == "Slice" else f"t{at}"
        net += layer(kind, draw(st.sampled_from(made)), tops, draw(ONE[kind]), f"l{at}")
        made += tops.split()
    if draw(st.booleans()):
        kind = draw(st.sampled_from(sorted(TWO)))
        bottoms = f"{draw(st.sampled_from(made))} {draw(st.sampled_from(made))}"
        net += layer(kind, bottoms, "end", draw(TWO[kind]), "join")
    return net


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(nets())
def test_random_nets(ask, prototxt: str) -> None:
    real = ask(prototxt, forward=True)
    try:
        ours = rows(shapes.infer(read(prototxt)))
    except ConfigError as error:
        assert isinstance(real, str), (str(error), real)
        return
    assert ours == real
