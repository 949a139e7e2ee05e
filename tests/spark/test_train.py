"""The whole thread through the real command: ranks that equal one, CaffeOnSpark's words, the line run by hand."""

from __future__ import annotations

import re
from pathlib import Path

import nets
import numpy as np
import pytest
from command import Command, Ended

from caffe_on_grid.proto import schema

pytestmark = [pytest.mark.spark, pytest.mark.mpi, pytest.mark.runtime]

SOLVER = nets.solver(iterations=20, more="momentum: 0.9 weight_decay: 0.001 iter_size: 2 snapshot: 10")
BATCH = 12
"""Records of one pass over all ranks; a step takes two."""


class Project:
    """One shuffled LMDB, and a folder for each number of ranks: the batch is that part of BATCH."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.lmdbs = nets.write_lmdb(command.folder / "train", 60), nets.write_lmdb(command.folder / "test", 24, seed=9)

    def solver(self, world: int) -> Path:
        """The solver for so many ranks, written once."""
        folder = self.command.folder / f"by-{world}"
        if not folder.exists():
            nets.write_job(folder, nets.net(*self.lmdbs, batch=BATCH // world), SOLVER)
        return folder / "solver.prototxt"

    def model(self, world: int) -> Path:
        """Where the model of so many ranks goes."""
        return self.command.folder / f"by-{world}" / "net.caffemodel"

    def words(self, verb: str, executors: int, devices: int) -> list[object]:
        """A command line."""
        world = executors * devices
        placed = ["--num-executors", executors, "-devices", devices]
        return [verb, "-conf", self.solver(world), "-model", self.model(world), *placed, "--check-every", 5]


@pytest.fixture(scope="module")
def project(runtime: Path, tmp_path_factory: pytest.TempPathFactory):
    command = Command(tmp_path_factory.mktemp("train"), runtime)
    yield Project(command)
    command.close()


@pytest.fixture(scope="module")
def by_one(project: Project) -> Ended:
    """One rank, one executor."""
    return project.command.run(*project.words("train", 1, 1), "--json").well()


@pytest.fixture(scope="module")
def by_three(project: Project) -> Ended:
    """Three ranks on one executor, trained and tested, in CaffeOnSpark's words."""
    words = project.words("submit", 1, 3)
    return project.command.run(*words, "-train", "-test", "-persistent", "-connection", "ethernet", "--json").well()


def parameters(model: Path) -> dict[str, np.ndarray]:
    net = schema.NetParameter.FromString(model.read_bytes())
    return {f"{layer.name}/{i}": np.array(b.data, np.float32) for layer in net.layer for i, b in enumerate(layer.blobs)}


def assert_equal(model: Path, other: Path) -> None:
    wanted, found = parameters(model), parameters(other)
    assert wanted.keys() == found.keys() and len(wanted) == 6
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5, err_msg=name)


def test_what_a_run_says_and_leaves(project: Project, by_one: Ended) -> None:
    said = by_one.json()
    folder = Path(said["run_folder"])
    assert (said["exit_code"], said["outcome"], said["cause"]) == (0, "done", None)
    assert said["model"] == str(project.model(1)) and project.model(1).is_file()
    (tested,) = said["tests"]
    assert (tested["task"], tested["iteration"], tested["outputs"].keys()) == ("train", 20, {"accuracy", "loss"})
    assert folder.parent == project.model(1).parent / "net"
    assert (folder.parent / "latest").read_text().strip() == said["run_id"]
    assert {p.name for p in folder.iterdir()} == {"run.json", "metrics.jsonl", "snapshots", "logs", "curves.png"}
    names = {p.name for p in (folder / "snapshots").iterdir()}
    assert names == {f"small_iter_{n}.{s}" for n in (10, 20) for s in ("caffemodel", "solverstate", "json")}
    for words in ("Iteration 15, loss = ", "Iteration 20, Testing net (#0)", "transport: none", "60; 20 iterations"):
        assert words in by_one.err
    assert project.command.left_behind() == []


def test_three_ranks_on_one_executor_equal_one(project: Project, by_one: Ended, by_three: Ended) -> None:
    assert_equal(project.model(1), project.model(3))
    assert "3 ranks = 1 executor × 3 devices" in by_three.err
    assert re.search(r"digest: .* equal on 3 ranks", by_three.err)


def test_two_executors_with_two_ranks_each_equal_one(project: Project, by_one: Ended) -> None:
    ended = project.command.run(*project.words("train", 2, 2)).well()
    assert_equal(project.model(1), project.model(4))
    assert re.fullmatch(r"local-\d+\n", ended.out)
    assert "4 ranks = 2 executors × 2 devices" in ended.err


def test_caffeonsparks_words_train_and_test(by_three: Ended) -> None:
    trained, tested = by_three.json()["tests"]
    assert (trained["task"], tested["task"]) == ("train", "test")
    assert tested["outputs"] == trained["outputs"]
    assert "note: -persistent is needless" in by_three.err


def test_the_line_of_a_dry_run_gives_the_same_run(project: Project, by_three: Ended) -> None:
    model = project.model(3)
    trained = model.read_bytes()
    dry = project.command.run(*project.words("train", 1, 3), "--dry-run", "--overwrite").well()
    assert dry.out.count("\n") == 1
    assert model.read_bytes() == trained
    model.unlink()
    project.command.shell(dry.out).well()
    assert model.read_bytes() == trained


def test_a_model_is_tested(project: Project, by_one: Ended) -> None:
    output = project.command.folder / "tested.txt"
    ended = project.command.run(*project.words("test", 1, 1)[:-2], "-output", output, "--json").well()
    (tested,) = ended.json()["tests"]
    assert tested["task"] == "test"
    assert tested["outputs"] == by_one.json()["tests"][0]["outputs"]
    lines = dict(line.split(": ") for line in output.read_text().splitlines())
    assert float(lines["accuracy"]) == pytest.approx(tested["outputs"]["accuracy"][0], abs=1e-5)
    assert project.model(1).is_file()
