"""Two executors that are processes of their own: the whole thread with every version of Spark that is supported."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import nets
import numpy as np
import pytest
from command import ROOT, Command, Ended
from ranks import Ranks

from caffe_on_grid.proto import schema
from caffe_on_grid.spec.job import JobSpec, Output

pytestmark = [pytest.mark.spark, pytest.mark.mpi, pytest.mark.runtime]

MASTER = "local-cluster[2,1,1024]"
SOLVER = nets.solver(iterations=20, more="momentum: 0.9 weight_decay: 0.001")


@pytest.fixture
def command(runtime: Path, tmp_path: Path):
    started = Command(tmp_path, runtime)
    yield started
    started.close()


class Elsewhere(Command):
    """The command as another environment has it installed, by that environment's Python."""

    python: Path = ROOT / ".cache" / "venv-spark35" / "bin" / "python"

    def line(self, *words: object) -> list[str]:
        return [str(self.python.with_name("caffe-on-grid")), *map(str, words)]


def job(command: Command, batch: int) -> Path:
    """The job with this batch per rank; its folder."""
    train, test = command.folder / "train", command.folder / "test"
    if not train.exists():
        nets.write_lmdb(train, 60)
        nets.write_lmdb(test, 24, seed=9)
    return nets.write_job(command.folder / f"batch-{batch}", nets.net(train, test, batch), SOLVER)


def by_one(command: Command, env: dict[str, str]) -> Path:
    """The model of one rank without Spark."""
    folder, model = job(command, 12), command.folder / "one.caffemodel"
    spec = JobSpec(("train",), "solver.prototxt", output=Output(str(model)))
    assert Ranks(command.runtime, env, command.folder, seed=5).run(spec, folder).code == 0
    return model


def parameters(model: Path) -> list[np.ndarray]:
    net = schema.NetParameter.FromString(model.read_bytes())
    return [np.array(blob.data, np.float32) for layer in net.layer for blob in layer.blobs]


def check(command: Command, env: dict[str, str]) -> Ended:
    """Train and test on the two executors, against one rank."""
    model = command.folder / "two.caffemodel"
    words = ("-conf", job(command, 6) / "solver.prototxt", "-model", model, "-train", "-test", "-clusterSize", 2)
    ended = command.run("submit", *words, "--master", MASTER, "--json").well()
    pids = re.search(r"executors: \S+ \(pid (\d+)\), \S+ \(pid (\d+)\)", ended.err)
    assert pids and pids[1] != pids[2]
    assert "2 ranks = 2 executors × 1 device" in ended.err
    assert [test["task"] for test in ended.json()["tests"]] == ["train", "test"]
    found, wanted = parameters(model), parameters(by_one(command, env))
    assert len(found) == len(wanted) == 6
    for ours, one in zip(found, wanted):
        np.testing.assert_allclose(ours, one, rtol=0, atol=1e-5)
    assert command.left_behind() == []
    return ended


def test_training_on_a_local_cluster(command: Command, runtime_env: dict[str, str]) -> None:
    ended = check(command, runtime_env)
    assert ended.json()["application_id"].startswith("app-")


@pytest.mark.spark35
def test_training_with_spark_3_5(command: Command, runtime_env: dict[str, str]) -> None:
    elsewhere = Elsewhere(command.folder, command.runtime, command.started)
    elsewhere.python = Path(os.environ.get("CAFFE_ON_GRID_SPARK35", elsewhere.python))
    ended = check(elsewhere, runtime_env)
    record = json.loads((Path(ended.json()["run_folder"]) / "run.json").read_text())
    assert record["versions"]["spark"].startswith("3.5.")
