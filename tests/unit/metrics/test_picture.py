"""The picture of a net: what is in it, that nothing lies upon anything else, and that it is well-formed."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.metrics import picture
from caffe_on_grid.worker import inspect

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = {"lenet": ["-shape", "1,28,28"]}


def inspected(root: Path, capsys: pytest.CaptureFixture[str], name: str) -> Any:
    net = root / "examples" / name / f"{name}_train_test.prototxt"
    assert inspect.main([str(net), "--json", *SHAPES.get(name, [])]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["lenet", "googlenet", "resnet50"])
def test_no_box_lies_on_another_and_every_layer_is_named(
    name: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = inspected(root, capsys, name)
    page = ElementTree.fromstring(picture.draw(net))
    width, height = float(page.attrib["width"]), float(page.attrib["height"])
    found = page.iterfind(f".//{SVG}g/{SVG}rect")
    rects = [{key: float(rect.attrib[key]) for key in ("x", "y", "width", "height")} for rect in found]
    assert len(rects) > 7
    for one, other in combinations(rects, 2):
        apart = [
            one[at] + one[size] < other[at] or other[at] + other[size] < one[at]
            for at, size in (("x", "width"), ("y", "height"))
        ]
        assert any(apart), (one, other)
    assert all(rect["x"] >= 0 and rect["x"] + rect["width"] <= width for rect in rects)
    assert all(rect["y"] >= 0 and rect["y"] + rect["height"] <= height for rect in rects)
    titles = " ".join(str(title.text) for title in page.iter(f"{SVG}title"))
    assert all(f"{layer['name']}: {layer['type']}, " in titles for layer in net["layers"])


def test_what_a_box_says(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = inspected(root, capsys, "lenet")
    boxes, ways = picture.boxes(net["layers"])
    assert [box.lines for box in boxes if box.layer["name"] in ("ip1", "loss")] == [
        ["ip1", "InnerProduct 500×800", "+ ReLU", "64×500", "400,500 parameters · 51.20 MFLOP"],
        ["loss", "SoftmaxWithLoss", "scalar", "with label of mnist"],
    ]
    assert ways == [(at, at + 1) for at in range(len(boxes) - 1)]
    said = picture.draw(net)
    assert "431,080 parameters, 293.50 MFLOP forward, phase TRAIN" in said


def test_ways_that_pass_rows_go_beside_the_boxes() -> None:
    plain: Any = {"type": "TanH", "top_shapes": [[2]], "param_shapes": [], "parameters": 0, "flops": 0}
    wired = {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "<e>": ["b", "d"]}
    layers = [{**plain, "name": name, "bottoms": bottoms, "tops": [name]} for name, bottoms in wired.items()]
    net = {"name": "x & y", "phase": "TEST", "parameters": 0, "flops": 0, "layers": layers}
    page = ElementTree.fromstring(picture.draw(net))
    assert next(page.iter(f"{SVG}text")).text == "x & y"
    curves = [path.attrib["d"].count("C") for path in page.iter(f"{SVG}path") if "class" in path.attrib]
    assert sorted(curves) == [1, 1, 1, 1, 5]


def test_an_empty_net_and_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    net = {"name": "", "phase": "TEST", "parameters": 0, "flops": 0, "layers": []}
    assert ElementTree.fromstring(picture.draw(net)).tag == f"{SVG}svg"
    monkeypatch.setitem(__import__("sys").modules, "igraph", None)
    with pytest.raises(EnvironmentFault, match=r"needs the package igraph.*pip install 'caffe-on-grid\[svg\]'"):
        picture.draw(net)
