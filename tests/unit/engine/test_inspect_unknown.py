"""inspect with --ignore-unknown-fields: what Caffe lacks is listed and left out, in a solver's nets too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caffe_on_grid.worker import inspect

NET = """name: "n" odd_field: 1
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: [2, 3] } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 }
  strange_param { x { y: 1 } } }
"""


@pytest.fixture
def solver(tmp_path: Path) -> Path:
    (tmp_path / "net.prototxt").write_text(NET)
    path = tmp_path / "solver.prototxt"
    path.write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 3 own_field: "x"\n')
    return path


def test_they_are_refused_with_their_place(solver: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.main([str(solver.parent / "net.prototxt")]) == 3
    assert "net.prototxt:1:11: NetParameter has no field named 'odd_field'" in capsys.readouterr().err


def test_they_are_listed_and_left_out(solver: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.main([str(solver), "--ignore-unknown-fields", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    places = ["solver.prototxt:1:65", "net.prototxt:1:11", "net.prototxt:4:3"]
    assert [line.partition(": ")[0].rpartition("/")[2] for line in found["left_out"]] == places
    assert found["nets"][0]["layers"][1]["param_shapes"] == [[4, 3], [4]]
    assert inspect.main([str(solver.parent / "net.prototxt"), "--ignore-unknown-fields"]) == 0
    said = capsys.readouterr().out
    assert "no field named 'strange_param'" in said and "InnerProduct" in said
