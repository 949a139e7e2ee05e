"""The proto room against real Caffe: its parser, its upgrade tools, its filter, its rates, its models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import graph, schedule, schema, text, upgrade, weights

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "proto"
sys.path.insert(0, str(HERE.parent / "unit" / "proto"))
from proto_net_checks import RULES, STATES  # noqa: E402
from proto_text_checks import REFUSED, SPELLINGS  # noqa: E402

pytestmark = pytest.mark.runtime
Net, Solver = schema.NetParameter, schema.SolverParameter


@pytest.fixture
def ask(in_runtime, tmp_path):
    """Ask proto_in_caffe.py."""

    def run(*args: str) -> Any:
        return json.loads(in_runtime([str(HERE / "proto_in_caffe.py"), *args], cwd=tmp_path).stdout)

    return run


@pytest.fixture
def upgraded(runtime, runtime_env, tmp_path):
    """Run one of Caffe's upgrade programs on a text; what it wrote, or None where it could not read."""

    def run(program: str, source: str) -> str | None:
        given, made = tmp_path / "given.prototxt", tmp_path / "made.prototxt"
        given.write_text(source)
        made.unlink(missing_ok=True)
        subprocess.run([str(runtime / "bin" / program), str(given), str(made)], env=runtime_env, capture_output=True)
        return made.read_text() if made.exists() else None

    return run


def test_schema_is_caffes(ask) -> None:
    compared, *differences = ask("schema")
    assert differences == [] and int(compared) > 400


@pytest.mark.parametrize("name", ["v0", "v1", "inputs", "input_dims"])
def test_nets_upgrade_as_in_caffe(upgraded, name: str) -> None:
    source = (DATA / f"{name}.prototxt").read_text()
    made = upgraded("upgrade_net_proto_text", source)
    assert made is not None
    assert upgrade.upgrade_net(text.parse(Net, source, name)) == text.parse(Net, made, "made")


def test_solvers_upgrade_as_in_caffe(upgraded) -> None:
    source = (DATA / "solver_old.prototxt").read_text()
    made = upgraded("upgrade_solver_proto_text", source)
    assert made is not None
    assert upgrade.upgrade_solver(text.parse(Solver, source, "s")) == text.parse(Solver, made, "made")


def test_caffe_reads_what_is_rendered(upgraded) -> None:
    net = upgrade.upgrade_net(text.parse(Net, (DATA / "v1.prototxt").read_text(), "v1"))
    net.name = 'é "quoted" \\'
    made = upgraded("upgrade_net_proto_text", text.render(net))
    assert made is not None
    assert text.parse(Net, made, "made") == net


def test_caffe_reads_and_refuses_the_same_texts(upgraded) -> None:
    for source, _ in SPELLINGS:
        made = upgraded("upgrade_net_proto_text", source)
        assert made is not None, source
        assert text.parse(Net, made, "made") == upgrade.upgrade_net(text.parse(Net, source, "given")), source
    for source, _ in REFUSED:
        assert upgraded("upgrade_net_proto_text", source) is None, source
        with pytest.raises(ConfigError):
            text.parse(Net, source, "given")


def test_filter_as_in_caffe(ask, tmp_path: Path) -> None:
    net = text.parse(Net, RULES, "net")
    for layer in net.layer:
        layer.input_param.shape.add().dim.append(1)
    (tmp_path / "net.prototxt").write_text(text.render(net))
    found = ask("filter", json.dumps(STATES), "net.prototxt")
    for (phase, level, stages), names in zip(STATES, found):
        state = schema.NetState(phase=phase, level=level, stage=stages)
        assert [layer.name for layer in graph.filter_net(net, state).layer] == names, (phase, level, stages)


RATES = (
    'lr_policy: "fixed"',
    'lr_policy: "step" gamma: 0.3 stepsize: 3',
    'lr_policy: "exp" gamma: 0.97',
    'lr_policy: "inv" gamma: 0.1 power: 0.75',
    'lr_policy: "multistep" gamma: 0.1 stepvalue: [2, 5, 9]',
    'lr_policy: "multistep" gamma: 0.1 stepvalue: [4, 4, 2]',
    'lr_policy: "poly" power: 2',
    'lr_policy: "poly" power: 0.5',
    'lr_policy: "sigmoid" gamma: 0.5 stepsize: 6',
)
TINY = """
net_param {
  layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 1 } } }
  layer { name: "z" type: "Input" top: "z" input_param { shape { dim: 1 } } }
  layer { name: "l" type: "EuclideanLoss" bottom: "p" bottom: "z" top: "l" }
}
base_lr: 0.07 max_iter: 9 solver_mode: CPU snapshot_prefix: "x" snapshot_after_train: false
"""


def test_rates_as_in_caffe(ask, tmp_path: Path) -> None:
    """Twelve iterations with max_iter 9, two queries in each as `solver.lr` and the update make them."""
    for index, policy in enumerate(RATES):
        (tmp_path / f"{index}.prototxt").write_text(TINY + policy)
    found = ask("rates", *[f"{index}.prototxt" for index in range(len(RATES))])
    for policy, rates in zip(RATES, found):
        solver, step = text.parse(Solver, TINY + policy, "solver"), 0
        for iteration, rate in enumerate(rates):
            mine = schedule.learning_rate(solver, iteration, step)
            assert mine == pytest.approx(rate, rel=2e-6, nan_ok=True), (policy, iteration)
            step = schedule.multistep(solver, iteration, schedule.multistep(solver, iteration, step))


def test_models_as_in_caffe(ask, tmp_path: Path) -> None:
    found = ask("models", str(tmp_path))
    for name, layers in found.items():
        model = weights.read_model((tmp_path / f"{name}.caffemodel").read_bytes())
        held = {layer.name: [weights.blob_array(blob) for blob in layer.blobs] for layer in model.layer if layer.blobs}
        for layer, blobs in held.items():
            for (shape, values), wanted in zip(blobs, layers[layer]):
                assert np.prod(shape) == len(wanted)
                assert np.array_equal(values, np.asarray(wanted, np.float32)), (name, layer)
        assert set(held) == ({"conv", "bn", "ip"} if name == "new" else {"conv", "ip"})
        assert held["conv"][0][0] == (3, 2, 3, 3) and held["ip"][0][0] in ((4, 27), (1, 1, 4, 27))
        types = {layer.name: layer.type for layer in model.layer}
        assert types["conv"] == "Convolution" and types["ip"] == "InnerProduct"
