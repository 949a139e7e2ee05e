"""Every example net as ONNX, against the torch engine; the program that writes files; the state_dict in PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="the exports' tests need torch: run them in a Python that has it")
pytest.importorskip("onnxruntime")

import torch
from unit.export import export_nets as nets

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.export import deploy, onnx_net, state_dict
from caffe_on_grid.proto import schema
from caffe_on_grid.worker import export, inspect, offline

pytestmark = pytest.mark.torch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NETS = {path.name[: -len("_train_test.prototxt")]: path for path in sorted(EXAMPLES.glob("*/*_train_test.prototxt"))}
SHAPES = {"lenet": "1,28,28", "cifar10_full": "3,32,32", "cifar10_quick": "3,32,32"}
SCORES = {
    "lenet": "ip2",
    "cifar10_quick": "ip2",
    "cifar10_full": "ip1",
    "caffenet": "fc8",
    "googlenet": "loss3/classifier,loss1/classifier,loss2/classifier",
    "resnet50": "fc1000",
}
"""What goes into the softmax: there nothing is hidden by saturation."""


def words(name: str, *more: str) -> list[str]:
    shape = ["-shape", SHAPES[name]] if name in SHAPES else []
    return ["-net", str(NETS[name]), "-batch", "2" if name in SHAPES else "1", *shape, *more]


def deployed(name: str, *more: str) -> tuple[Any, Any, list[str]]:
    return export.deployed(export.parser().parse_args([*words(name, *more), "-model", "none", "out.onnx"]))


def test_every_example_is_here() -> None:
    assert set(NETS) == set(SCORES)


@pytest.mark.parametrize("name", NETS)
def test_an_example_gives_the_engines_output(name: str, tmp_path: Path) -> None:
    net, known, remarks = deployed(name, "-outputs", SCORES[name])
    assert len(remarks) == 1 and "transform_param have been applied" in remarks[0]
    held = nets.parameters(known)
    given = nets.inputs(net, known)
    wanted = nets.engine(net, held, tmp_path).forward(given, SCORES[name].split(","))
    session = nets.onnx(net, known, held)
    assert {value.name for value in session.get_outputs()} == set(wanted)
    assert session.get_inputs()[0].shape == ["N", *known.blobs["data"][1:]]
    for blob, found in zip(wanted, session.run(list(wanted), given)):
        nets.close(found, wanted[blob])


@pytest.mark.parametrize("name", NETS)
def test_without_outputs_an_example_gives_probabilities(name: str) -> None:
    net, _, _ = deployed(name)
    probabilities = deploy.ends(net)
    assert len(probabilities) == len(SCORES[name].split(","))
    assert {layer.type for layer in net.layer if set(layer.top) & set(probabilities)} == {"Softmax"}
    assert all(blob == "prob" or blob.endswith("_prob") for blob in probabilities)
    onnx_net.check(net)


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A model of LeNet, and the engine that wrote it."""
    folder = tmp_path_factory.mktemp("lenet")
    net, known, _ = deployed("lenet")
    engine = nets.engine(net, nets.parameters(known), folder)
    engine.save_model(folder / "lenet.caffemodel")
    return folder / "lenet.caffemodel", engine


def test_the_program_writes_onnx(lenet: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, engine = lenet
    out = tmp_path / "lenet.onnx"
    assert export.main([*words("lenet"), "-model", str(model), str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert said.err == "note: input 'data' takes records to which scale of transform_param have been applied\n"
    given = {"data": np.random.RandomState(3).rand(5, 1, 28, 28).astype(np.float32)}
    (found,) = nets.session(out.read_bytes()).run(["prob"], given)
    nets.close(found, engine.forward(given, ["prob"])["prob"])
    assert export.main([*words("lenet"), "-model", str(model), str(out)]) == 3
    assert "exists; remove it, name another, or say --overwrite" in capsys.readouterr().err
    assert export.main([*words("lenet"), "-model", str(model), str(out), "--overwrite"]) == 0


def test_a_state_dict_is_what_torchs_own_modules_load(lenet: tuple[Path, Any], tmp_path: Path) -> None:
    model, engine = lenet
    out = tmp_path / "lenet.pt"
    assert export.main([*words("lenet"), "-model", str(model), str(out)]) == 0
    nn = torch.nn
    parts = {"conv1": nn.Conv2d(1, 20, 5), "conv2": nn.Conv2d(20, 50, 5), "ip1": nn.Linear(800, 500)}
    module = nn.ModuleDict({**parts, "ip2": nn.Linear(500, 10)})
    module.load_state_dict(torch.load(out, weights_only=True))
    given = np.random.RandomState(3).rand(5, 1, 28, 28).astype(np.float32)
    with torch.no_grad():
        x = nn.functional.max_pool2d(module["conv1"](torch.from_numpy(given)), 2)
        x = nn.functional.max_pool2d(module["conv2"](x), 2).flatten(1)
        found = module["ip2"](module["ip1"](x).relu()).softmax(1).numpy()
    nets.close(found, engine.forward({"data": given}, ["prob"])["prob"])


SHARED = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "in/a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" }
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } bias_filler { type: "constant" value: 2 } } }
layer { name: "in" type: "InnerProduct" bottom: "a" top: "y" param { name: "w" }
  inner_product_param { num_output: 3 bias_filler { type: "constant" value: 3 } } }
"""


def test_hdf5_models_are_exported_and_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.prototxt").write_text(SHARED)
    model, out = tmp_path / "m.caffemodel.h5", tmp_path / "m.pt"
    engine = registry.create("torch", offline.plan(nets.net_of(SHARED), "TEST", tmp_path))
    engine.save_model(model)
    assert export.main(["-net", str(tmp_path / "net.prototxt"), "-model", str(model), str(out)]) == 0
    found = torch.load(out, weights_only=True)
    weight = torch.from_numpy(engine.all_params()[0].copy())
    for name, bias in (("in/a", 2), ("in", 3)):
        assert torch.equal(found[f"{name}.weight"], weight) and (found[f"{name}.bias"] == bias).all()
    capsys.readouterr()
    assert inspect.main([str(model), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    shapes = {layer["name"]: [blob["shape"] for blob in layer["blobs"]] for layer in shown["layers"]}
    assert shapes["in/a"] == [[3, 3], [3]] and shapes["in"] == [[3]] and shown["parameters"] == 15
    model.write_bytes(b"no HDF5")
    assert inspect.main([str(model)]) == 3
    assert "not one of Caffe's HDF5 files" in capsys.readouterr().err


def test_batch_norm_and_scale_in_a_state_dict() -> None:
    net, known, _ = deployed("resnet50")
    held = nets.parameters(known)
    found = state_dict.entries(net, held)
    first = next(layer for layer in net.layer if layer.type == "BatchNorm")
    scale = next(layer for layer in net.layer if layer.type == "Scale")
    norm = torch.nn.BatchNorm2d(64, eps=first.batch_norm_param.eps)
    norm.load_state_dict(
        {
            "running_mean": torch.from_numpy(found[f"{first.name}.running_mean"]),
            "running_var": torch.from_numpy(found[f"{first.name}.running_var"]),
            "weight": torch.from_numpy(found[f"{scale.name}.weight"]),
            "bias": torch.from_numpy(found[f"{scale.name}.bias"]),
        },
        strict=False,
    )
    x = np.random.RandomState(0).randn(2, 64, 3, 3).astype(np.float32)
    mean, variance = (held[first.name][at] / held[first.name][2] for at in (0, 1))
    wanted = (x - mean[:, None, None]) / np.sqrt(variance + first.batch_norm_param.eps)[:, None, None]
    wanted = wanted * held[scale.name][0][:, None, None] + held[scale.name][1][:, None, None]
    nets.close(norm.eval()(torch.from_numpy(x)).detach().numpy(), wanted)
    assert {key.rpartition(".")[0] for key in found} == set(held)


CASES = {
    "suffix": (["-model", "m.caffemodel", "x.h5"], 2, "expected one of .onnx, .pt, .pth"),
    "batch": (["-model", "m.caffemodel", "-batch", "0", "x.onnx"], 2, "-batch 0: expected at least 1"),
    "no model": (["-model", "none.caffemodel", "x.onnx"], 3, "weights none.caffemodel: No such file"),
    "no such output": (["-model", "none.caffemodel", "-outputs", "ip3", "x.onnx"], 3, "no blob 'ip3' to give"),
    "another net's": (["-model", "other.caffemodel", "x.onnx"], 3, "no parameters for conv1, conv2, ip1, ip2"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    other = schema.NetParameter(layer=[schema.LayerParameter(name="other", type="ReLU")])
    (tmp_path / "other.caffemodel").write_bytes(other.SerializeToString())
    more, code, said = CASES[name]
    assert export.main([*words("lenet"), *more]) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and said in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["other.caffemodel"]
