"""`inspect` and `time` on real files, in the ranks' Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import nets
import numpy as np
import pytest

from caffe_on_grid.proto import schema

pytestmark = pytest.mark.runtime


@pytest.fixture(scope="module")
def folder(tmp_path_factory, root):
    """A net, a solver, an LMDB, a mean, and Caffe's own model and snapshot."""
    made = tmp_path_factory.mktemp("inspect")
    nets.write_lmdb(made / "records", 48)
    (made / "net.prototxt").write_text(nets.net("records", "records", batch=4))
    (made / "solver.prototxt").write_text(nets.solver(iterations=24, more="iter_size: 2"))
    mean = schema.BlobProto(num=1, channels=3, height=2, width=2, data=range(12))
    (made / "mean.binaryproto").write_bytes(mean.SerializeToString())
    with np.load(root / "tests" / "golden" / "data" / "solvers" / "sgd_bn.npz") as case:
        (made / "bn.caffemodel").write_bytes(bytes(case["model_bytes"]))
        (made / "bn.solverstate").write_bytes(bytes(case["state_bytes"]))
    (made / "empty.prototxt").write_text("")
    (made / "bad.prototxt").write_text(nets.net("records", "records", 4).replace("kernel_size: 3", "kernel_size: 30"))
    return made


@pytest.fixture
def run(in_runtime, folder):
    """`run("inspect", words…)` → CompletedProcess."""
    modules = {"inspect": "caffe_on_grid.worker.inspect", "time": "caffe_on_grid.worker.timing"}
    return lambda verb, *words, check=True: in_runtime(["-m", modules[verb], *words], cwd=folder, check=check)


@pytest.mark.parametrize("engine", ["auto", "caffe"])
def test_a_nets_shapes(run, engine: str) -> None:
    found = json.loads(run("inspect", "net.prototxt", "--phase", "TEST", "--json", "--engine", engine).stdout)
    layers = {layer["name"]: layer for layer in found["layers"]}
    assert layers["data"]["top_shapes"] == [[6, 1, 8, 8], [6]] and "records of records" in found["inputs"][0]
    assert layers["conv"]["top_shapes"] == [[6, 6, 6, 6]] and layers["conv"]["param_shapes"] == [[6, 1, 3, 3], [6]]
    assert layers["ip2"]["bottoms"] == ["ip1"] and layers["loss"]["loss_weights"] == [1.0]
    assert layers["accuracy"]["bottoms"] == ["ip2", "label"]  # not the splits that Caffe puts between
    assert (
        found["parameters"] == sum(layer["parameters"] for layer in found["layers"]) == 60 + 54 * 12 + 12 + 12 * 4 + 4
    )
    assert found["parameter_bytes"] == 4 * found["parameters"]
    assert layers["conv"]["flops"] == 2 * 6 * 9 * 6 * 6 * 6 and layers["relu"]["bytes"] == 0
    assert found["flops"] == sum(layer["flops"] for layer in found["layers"]) and found["warnings"] == []


STATES = """layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "a" type: "Silence" bottom: "data" include { stage: "a" } }
layer { name: "ab" type: "Silence" bottom: "data" include { stage: "a" stage: "b" phase: TEST } }
layer { name: "not_b" type: "Silence" bottom: "data" exclude { stage: "b" } }
layer { name: "high" type: "Silence" bottom: "data" include { min_level: 2 } include { stage: "c" max_level: -1 } }
"""


@pytest.mark.parametrize(
    ("words", "level", "stages"),
    [("", 0, ""), ("-stage a,b -level 2", 2, "a b"), ("-stage c --stage a -level=-3", -3, "a c")],
)
def test_a_nets_layers_are_those_of_its_state(run, in_runtime, folder, words: str, level: int, stages: str) -> None:
    (folder / "states.prototxt").write_text(STATES)
    build = f"print(*caffe.Net('states.prototxt', caffe.TEST, {level}, {stages.split()})._layer_names)"
    caffes = in_runtime(["-c", f"import caffe; {build}"], cwd=folder).stdout.split()
    found = json.loads(run("inspect", "states.prototxt", "-phase", "TEST", *words.split(), "--json").stdout)
    assert [layer["name"] for layer in found["layers"]] == [name for name in caffes if "_split" not in name]
    timed = json.loads(run("time", "-model", "states.prototxt", "-phase", "TEST", *words.split(), "--json").stdout)
    assert [layer["name"] for layer in timed["layers"]] == caffes


def test_a_solver_is_resolved(run) -> None:
    found = json.loads(run("inspect", "solver.prototxt", "--json").stdout)
    assert (found["type"], found["batch"], found["records_seen"], found["epochs"]) == ("SGD", 8, 192, 4.0)
    assert found["fields"]["base_lr"] == 0.05 and found["defaults"]["regularization_type"] == "L2"
    assert [net["phase"] for net in found["nets"]] == ["TRAIN", "TEST"]


def test_files_without_caffe(run) -> None:
    model = json.loads(run("inspect", "bn.caffemodel", "--json").stdout)
    assert model["parameters"] == 434 and model["layers"][1]["name"] == "conv1"
    shape = model["layers"][1]["blobs"][0]["shape"]
    assert shape == [4, 2, 3, 3]
    assert "iteration 12" in run("inspect", "bn.solverstate").stdout
    assert "mean of each channel: 1.5, 5.5, 9.5" in run("inspect", "mean.binaryproto").stdout


def test_an_lmdb(run) -> None:
    found = json.loads(run("inspect", "records", "--records", "2", "--json").stdout)
    assert found["records"] == 48 and found["labels"] == {"0": 12, "1": 12, "2": 12, "3": 12}
    first = {"key": "00000000", "shape": [1, 8, 8], "type": "uint8", "label": 0, "encoded": False}
    assert len(found["first"]) == 2 and found["first"][0] == first


def test_times_of_layers(run) -> None:
    found = json.loads(run("time", "-model", "net.prototxt", "-iterations", "2", "--json").stdout)
    names = [layer["name"] for layer in found["layers"]]
    assert names == ["data", "conv", "relu", "pool", "ip1", "ip2", "loss"]
    assert found["total_ms"] == pytest.approx(2 * sum(x["forward_ms"] + x["backward_ms"] for x in found["layers"]))
    text = run("time", "-model", "net.prototxt", "-iterations", "1").stdout.splitlines()
    assert text[0] == "Average time per layer: " and text[-1].startswith("Total Time: ") and len(text) == 1 + 14 + 4


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["inspect", "none"], 3, "none: no such file or folder"),
        (["inspect", "empty.prototxt"], 3, "neither a net"),
        (["inspect", "bad.prototxt"], 3, "Caffe refuses layer 'conv'"),
        (["inspect", "."], 3, "not an LMDB"),
        (["inspect", "net.prototxt", "-shape", "3x4"], 2, "expected three positive numbers"),
        (["time", "-model", "net.prototxt", "-iterations", "0"], 2, "at least 1"),
        (["time", "-model", "none"], 3, "none: No such file"),
    ],
)
def test_errors_are_one_line(run, words, code, said) -> None:
    done = run(*words, check=False)
    assert done.returncode == code and done.stdout == "", done
    assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("send", [os.kill, os.killpg])
@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "error: interrupted\n"), (signal.SIGTERM, -15, "")]
)
def test_signals_leave_one_line_and_nobody(runtime, runtime_env, folder, send, number, code, said) -> None:
    """A signal to the program alone, as by `kill`, and to its whole group, as by a terminal."""
    command = [runtime / "bin" / "python", "-m", "caffe_on_grid.worker.timing", "-model", "net.prototxt"]
    running = subprocess.Popen(
        [*command, "-iterations", "1000000000"], cwd=folder, env=runtime_env, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while not (child := children.read_text().split()):
        time.sleep(0.01)
    while not any("libcaffe" in line for line in Path(f"/proc/{child[0]}/maps").read_text().splitlines()):
        time.sleep(0.01)
    send(running.pid, number)
    assert (running.communicate()[1], running.returncode) == (said, code)
    for _ in range(1000):
        if not Path(f"/proc/{child[0]}").exists():
            break
        time.sleep(0.01)
    assert not Path(f"/proc/{child[0]}").exists()


@pytest.mark.torch
def test_the_torch_engine_shows_and_times_the_same_net(run, in_torch, folder) -> None:
    """Without Caffe, `auto` is torch."""
    shown = ["-m", "caffe_on_grid.worker.inspect", "solver.prototxt", "--json"]
    found = json.loads(in_torch(shown, cwd=folder).stdout)
    assert found["nets"] == json.loads(run("inspect", "solver.prototxt", "--json").stdout)["nets"]
    timed = ["-m", "caffe_on_grid.worker.timing", "-model", "net.prototxt", "--engine", "torch", "-iterations", "2"]
    times = json.loads(in_torch([*timed, "--json"], cwd=folder).stdout)
    assert times["engine"].startswith("torch ")
    assert [x["type"] for x in times["layers"]][1:4] == ["Convolution", "ReLU", "Pooling"]
