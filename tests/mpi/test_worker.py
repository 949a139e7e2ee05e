"""The worker room with real Caffe, MPI and LMDB, without Spark."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import nets
import numpy as np
import pytest
from ranks import Ranks

from caffe_on_grid.proto import schema
from caffe_on_grid.spec.job import DataSpec, EngineSpec, JobSpec, Output, Start, SyncSpec
from caffe_on_grid.spec.report import Checked, Finished, Saved, Started, Stepped, Tested

pytestmark = [pytest.mark.runtime, pytest.mark.mpi]


@pytest.fixture
def ranks(runtime: Path, runtime_env: dict[str, str], tmp_path: Path) -> Ranks:
    return Ranks(runtime, runtime_env, tmp_path)


@pytest.fixture(scope="module")
def lmdbs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("lmdb")
    return nets.write_lmdb(folder / "train", 48), nets.write_lmdb(folder / "test", 24, seed=9)


def job(model: Path, **parts: object) -> JobSpec:
    spec = JobSpec(("train",), "solver.prototxt", output=Output(model=str(model)), sync=SyncSpec(check_every=10))
    return dataclasses.replace(spec, **parts)


def parameters(model: Path) -> dict[str, np.ndarray]:
    net = schema.NetParameter.FromString(model.read_bytes())
    return {f"{layer.name}/{i}": np.array(b.data, np.float32) for layer in net.layer for i, b in enumerate(layer.blobs)}


def test_one_rank_trains_tests_and_leaves_a_model(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path) -> None:
    folder = nets.write_job(
        tmp_path / "job", nets.net(*lmdbs, batch=12), nets.solver(iterations=40, more="snapshot: 20")
    )
    outcome = ranks.run(job(tmp_path / "m.caffemodel"), folder)
    assert outcome.code == 0, outcome
    assert [t.iteration for t in outcome.of(Tested)] == [0, 10, 20, 30, 40]
    assert outcome.of(Tested)[-1].outputs["accuracy"][0] > 0.9
    assert outcome.of(Started)[0].records == 48
    assert [s.iteration for s in outcome.of(Stepped) if s.displayed] == [1, 6, 11, 16, 21, 26, 31, 36]
    assert outcome.of(Finished)[0].samples == 40 * 12
    assert len(parameters(tmp_path / "m.caffemodel")) == 6
    names = {p.name for p in (tmp_path / "run" / "snapshots").iterdir()}
    assert names == {f"small_iter_{n}.{s}" for n in (20, 40) for s in ("caffemodel", "solverstate", "json")}
    assert len(outcome.of(Saved)) == 3


@pytest.mark.parametrize(
    "more",
    ["momentum: 0.9 weight_decay: 0.001", "momentum: 0.9 iter_size: 2 weight_decay: 0.01 clip_gradients: 0.5"],
)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_n_ranks_equal_one(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path, world: int, more: str) -> None:
    results = []
    for n in (1, world):
        net = nets.net(*lmdbs, batch=12 // n)
        folder = nets.write_job(tmp_path / f"job{n}", net, nets.solver(more=more, test=False))
        outcome = ranks.run(job(tmp_path / f"m{n}.caffemodel"), folder, world=n)
        assert outcome.code == 0, outcome
        digests = {(c.iteration, c.digest) for c in outcome.of(Checked)}
        assert len(digests) == len({c.iteration for c in outcome.of(Checked)})
        results.append(parameters(tmp_path / f"m{n}.caffemodel"))
    for name, values in results[0].items():
        np.testing.assert_allclose(results[1][name], values, rtol=0, atol=1e-5, err_msg=name)


def test_tests_over_all_ranks_equal_one_rank(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path) -> None:
    found = []
    for n in (1, 3):
        folder = nets.write_job(tmp_path / f"job{n}", nets.net(*lmdbs, batch=12 // n), nets.solver(iterations=1))
        found.append(ranks.run(job(tmp_path / f"m{n}.caffemodel"), folder, world=n).of(Tested)[0].outputs)
    assert found[0] == found[1]


@pytest.mark.parametrize("world", [1, 2])
def test_resuming_equals_an_unbroken_run(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path, world: int) -> None:
    net = nets.net(*lmdbs, batch=5, dropout=True, transform="scale: 0.0039 mirror: true crop_size: 7")
    models = {}
    for name, iterations, start in (("whole", 20, None), ("first", 10, None), ("second", 20, "first")):
        solver = nets.solver(iterations=iterations, more="snapshot: 10 momentum: 0.9")
        folder = nets.write_job(tmp_path / name, net, solver)
        state = str(tmp_path / "run" / "snapshots" / "small_iter_10.solverstate") if start else None
        outcome = ranks.run(job(tmp_path / f"{name}.caffemodel", start=Start(snapshot=state)), folder, world=world)
        assert outcome.code == 0, outcome
        models[name] = (tmp_path / f"{name}.caffemodel").read_bytes()
        if name == "whole":
            (tmp_path / "run").rename(tmp_path / "run-whole")
    assert models["second"] == models["whole"]
    assert models["first"] != models["whole"]


def test_weights_are_copied_by_name(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path) -> None:
    net, first = nets.net(*lmdbs, batch=12), tmp_path / "first.caffemodel"
    folder = nets.write_job(tmp_path / "job", net, nets.solver(iterations=20))
    assert ranks.run(job(first), folder).code == 0
    still = nets.write_job(tmp_path / "still", net, nets.solver(iterations=0).replace("base_lr: 0.05", "base_lr: 0"))
    outcome = ranks.run(job(tmp_path / "second.caffemodel", start=Start(weights=(str(first),))), still, world=2)
    assert outcome.code == 0, outcome
    (still / "solver.prototxt").write_text((still / "solver.prototxt").read_text() + f'weights: "{first}"\n')
    assert ranks.run(job(tmp_path / "third.caffemodel"), still).code == 0
    for name, values in parameters(first).items():
        for other in ("second", "third"):
            np.testing.assert_array_equal(parameters(tmp_path / f"{other}.caffemodel")[name], values)


def test_the_test_task_reads_the_model(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path) -> None:
    model, out = tmp_path / "m.caffemodel", tmp_path / "out.txt"
    folder = nets.write_job(tmp_path / "job", nets.net(*lmdbs, batch=12), nets.solver(iterations=40))
    last = ranks.run(job(model), folder).of(Tested)[-1].outputs
    spec = JobSpec(("test",), "solver.prototxt", output=Output(model=str(model), text=str(out)))
    outcome = ranks.run(spec, folder, world=2, task="test")
    assert outcome.code == 0, outcome
    assert outcome.of(Tested)[0].outputs == last
    assert dict(line.split(": ") for line in out.read_text().splitlines()).keys() == {"accuracy", "loss"}


@pytest.mark.parametrize(
    ("change", "category", "words"),
    [
        (("num_output: 4", "num_output: 3"), "DataError", "label 3 is out of range"),
        (("base_lr: 0.05", "base_lr: 1e12"), "TrainingFailed", "the loss is nan at iteration"),
        (
            ('type: "SoftmaxWithLoss"', 'type: "Python" python_param { module: "m" layer: "L" }'),
            "ConfigError",
            "Python",
        ),
    ],
)
def test_failures_name_their_cause(
    ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path, change: tuple[str, str], category: str, words: str
) -> None:
    texts = [t.replace(*change) for t in (nets.net(*lmdbs, batch=12), nets.solver(test=False))]
    outcome = ranks.run(job(tmp_path / "m.caffemodel"), nets.write_job(tmp_path / "job", *texts), world=2)
    assert outcome.code != 0
    assert outcome.failure is not None and outcome.failure.category == category
    assert words in outcome.failure.message
    assert not (tmp_path / "m.caffemodel").exists()


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_model_that_cannot_be_written_fails_the_training(
    ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path, snapshots: bool
) -> None:
    (tmp_path / "file").touch()
    solver = nets.solver(iterations=2, test=False) + ("snapshot: 2\n" if snapshots else "snapshot_after_train: false\n")
    folder = nets.write_job(tmp_path / "job", nets.net(*lmdbs, batch=12), solver)
    outcome = ranks.run(job(tmp_path / "file" / "m.caffemodel"), folder)
    assert (outcome.code, outcome.failure and outcome.failure.category) == (1, "TrainingFailed")
    assert "the model could not be written: " in outcome.failure.message
    assert ("; the snapshot of iteration 2 holds it" in outcome.failure.message) == snapshots
    assert [Path(saved.uri).name for saved in outcome.of(Saved)] == ["small_iter_2.json"] * snapshots


def test_bad_records_are_named_or_replaced(ranks: Ranks, tmp_path: Path, lmdbs: tuple[Path, Path]) -> None:
    import lmdb

    path = nets.write_lmdb(tmp_path / "bad", 48)
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(b"00000017", b"\xff\xff\xff no datum")
    folder = nets.write_job(tmp_path / "job", nets.net(path, lmdbs[1], batch=12), nets.solver(test=False))
    outcome = ranks.run(job(tmp_path / "m.caffemodel"), folder)
    assert outcome.failure is not None and outcome.failure.category == "DataError"
    assert "00000017" in outcome.failure.message
    again = ranks.run(job(tmp_path / "m.caffemodel", data=DataSpec(skip_bad_records=True)), folder)
    assert again.code == 0 and again.of(Finished)[0].skipped >= 1


def test_python_layers_run_where_they_are_allowed(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path) -> None:
    twice = 'python_param { module: "twice" layer: "Twice" }'
    layer = f'layer {{ name: "twice" type: "Python" bottom: "ip2" top: "ip3" {twice} }}'
    net = nets.net(*lmdbs, batch=12).replace('layer { name: "accuracy"', layer + '\nlayer { name: "accuracy"')
    folder = nets.write_job(
        tmp_path / "job", net.replace('bottom: "ip2" bottom', 'bottom: "ip3" bottom'), nets.solver()
    )
    (folder / "twice.py").write_text(TWICE)
    refused = ranks.run(job(tmp_path / "m.caffemodel"), folder, world=2)
    assert refused.failure is not None and "--allow-python-layers" in refused.failure.message
    allowed = job(tmp_path / "m.caffemodel", engine=EngineSpec(allow_python_layers=True))
    outcome = ranks.run(allowed, folder, world=2)
    assert outcome.code == 0, outcome
    assert outcome.of(Started)[0].loss_weights == {"loss": 1.0}


TWICE = """
import caffe

class Twice(caffe.Layer):
    def setup(self, bottom, top): pass
    def reshape(self, bottom, top): top[0].reshape(*bottom[0].data.shape)
    def forward(self, bottom, top): top[0].data[...] = 2 * bottom[0].data
    def backward(self, top, propagate_down, bottom): bottom[0].diff[...] = 2 * top[0].diff
"""


def test_more_ranks_than_test_batches(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path) -> None:
    solver = nets.solver(iterations=10).replace("test_iter: 4", "test_iter: 1")
    outcome = ranks.run(
        job(tmp_path / "m.caffemodel"), nets.write_job(tmp_path / "job", nets.net(*lmdbs, 6), solver), 3
    )
    assert outcome.code == 0, outcome
    assert [(t.iteration, t.batches) for t in outcome.of(Tested)] == [(0, 1), (10, 1)]


def test_hdf5_snapshots_resume_in_another_world(ranks: Ranks, lmdbs: tuple[Path, Path], tmp_path: Path) -> None:
    """Two ranks of batch 6 go on as one of batch 12 would: the stream goes on where it stood."""
    models = []
    for name, world, batch, iterations, resumed in (
        ("whole", 1, 12, 20, False),
        ("a", 2, 6, 10, False),
        ("b", 1, 12, 20, True),
    ):
        solver = nets.solver(iterations=iterations, test=False, more="snapshot: 10 momentum: 0.9 snapshot_format: HDF5")
        folder = nets.write_job(tmp_path / name, nets.net(*lmdbs, batch), solver)
        state = str(tmp_path / "run" / "snapshots" / "small_iter_10.solverstate.h5") if resumed else None
        outcome = ranks.run(job(tmp_path / f"{name}.caffemodel", start=Start(snapshot=state)), folder, world)
        assert outcome.code == 0, outcome
        models.append(parameters(tmp_path / f"{name}.caffemodel"))
        if name == "whole":
            (tmp_path / "run").rename(tmp_path / "run-whole")
    for name, values in models[0].items():
        np.testing.assert_allclose(models[2][name], values, rtol=0, atol=1e-5, err_msg=name)
