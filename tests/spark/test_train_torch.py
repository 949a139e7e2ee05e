"""`--engine torch` through the real command: train, test, time and inspect give what Caffe gives."""

from __future__ import annotations

import json
from pathlib import Path

import nets
import numpy as np
import pytest
from command import Command, Ended

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.proto import schema
from caffe_on_grid.submit import archive

pytestmark = [pytest.mark.spark, pytest.mark.mpi, pytest.mark.runtime, pytest.mark.torch]
SOLVER = nets.solver(iterations=10, more="momentum: 0.9 weight_decay: 0.001")
BATCH = 12
"""Records of one step over all ranks."""


class Project:
    """One net for both engines; Caffe trains on one rank, torch on two."""

    def __init__(self, command: Command, torch: Path) -> None:
        self.command, self.runtimes = command, {"caffe": str(command.runtime), "torch": str(torch)}
        self.lmdbs = nets.write_lmdb(command.folder / "train", 60), nets.write_lmdb(command.folder / "test", 24, seed=9)

    def model(self, engine: str) -> Path:
        """Where an engine's model goes."""
        return self.command.folder / f"by-{engine}" / "net.caffemodel"

    def run(self, engine: str, world: int, *tasks: str) -> Ended:
        """`submit` with CaffeOnSpark's words."""
        folder = self.model(engine).parent
        if not folder.exists():
            nets.write_job(folder, nets.net(*self.lmdbs, batch=BATCH // world), SOLVER)
        words = ["-conf", folder / "solver.prototxt", "-model", self.model(engine), "--num-executors", world]
        chosen = ["--engine", engine, "--runtime", self.runtimes[engine], "--json"]
        return self.command.run("submit", *tasks, *words, *chosen).well()


@pytest.fixture(scope="module")
def project(runtime: Path, torch_python: Path, tmp_path_factory: pytest.TempPathFactory):
    command = Command(tmp_path_factory.mktemp("train"), runtime)
    yield Project(command, torch_python.parent.parent)
    command.close()


def parameters(model: Path) -> list[np.ndarray]:
    net = schema.NetParameter.FromString(model.read_bytes())
    return [np.array(blob.data, np.float32) for layer in net.layer for blob in layer.blobs]


def test_two_ranks_train_and_test_as_caffe_does(project: Project) -> None:
    by_torch = project.run("torch", 2, "-train", "-test").json()
    by_caffe = project.run("caffe", 1, "-train").json()
    record = json.loads((Path(by_torch["run_folder"]) / "run.json").read_text())
    assert record["versions"]["engine"].startswith("torch ")
    ours, theirs = (parameters(project.model(engine)) for engine in ("torch", "caffe"))
    assert len(ours) == len(theirs) == 6
    for own, wanted in zip(ours, theirs):
        np.testing.assert_allclose(own, wanted, rtol=0, atol=1e-5)
    trained, tested = (test["outputs"] for test in by_torch["tests"])
    assert tested == trained
    assert trained["accuracy"] == by_caffe["tests"][-1]["outputs"]["accuracy"]
    assert project.command.left_behind() == []


@pytest.mark.parametrize("verb", [["time", "-iterations", "1", "-model"], ["inspect"]])
def test_programs_build_the_net_by_torch(project: Project, verb: list[str]) -> None:
    folder = project.command.folder / "programs"
    if not folder.exists():
        nets.write_job(folder, nets.net(*project.lmdbs, batch=4), SOLVER)
    name, *words = verb
    chosen = ["--engine", "torch", "--runtime", project.runtimes["torch"]]
    shown = project.command.run(name, *chosen, *words, folder / "net.prototxt", "--json").well().json()
    layers = [layer["name"] for layer in shown["layers"]]
    assert {"conv", "ip1", "loss"} <= set(layers)
    assert name == "inspect" or shown["engine"].startswith("torch ")


def test_a_runtime_without_the_engine_is_told(project: Project) -> None:
    """Caffe's runtime has no torch: one line, from the rank's own words; a folder of that name changes nothing."""
    words = ["time", "--engine", "torch", "--runtime", project.runtimes["caffe"], "-model", "x.prototxt"]
    (project.command.folder / "x.prototxt").write_text('layer { name: "d" type: "Input" top: "d" }')
    (project.command.folder / "torch").mkdir()
    ended = project.command.run(*words)
    assert ended.code == 4 and "engine 'torch' cannot be loaded in this Python: No module named 'torch'" in ended.err
    assert ended.err.count("\n") == 1


def test_the_facts_of_a_runtime_with_torch(project: Project) -> None:
    """Caffe is not asked of it, unless it is named."""
    folder = Path(project.runtimes["torch"])
    facts = archive.verify(folder, libraries=False)
    assert (facts.caffe, facts.torch is not None, facts.mpi[:20]) == (None, True, "MPICH Version: 4.3.2"[:20])
    with pytest.raises(EnvironmentFault, match=r"caffe: No module named 'caffe'.*make archive`"):
        archive.verify(folder, libraries=False, engine="caffe")
