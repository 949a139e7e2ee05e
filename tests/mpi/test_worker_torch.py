"""The torch engine in real ranks: the same training as with Caffe, and snapshots that either engine continues from."""

from __future__ import annotations

from pathlib import Path

import nets
import numpy as np
import pytest
from ranks import Outcome, Ranks

from caffe_on_grid.proto import weights
from caffe_on_grid.spec.job import EngineSpec, JobSpec, Output, Start, SyncSpec
from caffe_on_grid.spec.report import Checked, Started, Stepped, Tested

pytestmark = [pytest.mark.runtime, pytest.mark.mpi, pytest.mark.torch]
SOLVER = "snapshot: 10 momentum: 0.9 weight_decay: 0.001"
TRANSFORM = "scale: 0.0039 mirror: true crop_size: 7"


class Engines:
    """Trains one net, with dropout, by either engine."""

    def __init__(self, caffe: Path, torch: Path, env: dict[str, str], folder: Path, lmdbs: tuple[Path, Path]) -> None:
        self.runtimes, self.env, self.folder, self.lmdbs = {"caffe": caffe, "torch": torch}, env, folder, lmdbs

    def train(
        self,
        engine: str,
        iterations: int = 20,
        world: int = 1,
        resume: Path | None = None,
        layer: str = "ReLU",
        strict: bool = False,
    ) -> Trained:
        """Train in a folder of its own, from a .solverstate if one is given; `layer` is a type, in place."""
        folder = self.folder / f"{len(list(self.folder.iterdir()))}-{engine}"
        net = nets.net(*self.lmdbs, batch=6, dropout=True, transform=TRANSFORM).replace("ReLU", layer)
        job_dir = nets.write_job(folder / "job", net, nets.solver(iterations=iterations, more=SOLVER))
        (folder / "gangs").mkdir()
        ranks = Ranks(self.runtimes[engine], self.env, folder / "gangs")
        job = JobSpec(
            ("train",),
            "solver.prototxt",
            output=Output(model=str(folder / "m.caffemodel")),
            sync=SyncSpec(check_every=10),
            engine=EngineSpec(name=engine, strict_caffe=strict),
            start=Start(snapshot=str(resume) if resume else None),
        )
        outcome = ranks.run(job, job_dir, world=world)
        assert outcome.code == 0, outcome
        assert {s.engine.split()[0] for s in outcome.of(Started)} == {engine}
        return Trained(folder, outcome)


class Trained:
    """What a training left."""

    def __init__(self, folder: Path, outcome: Outcome) -> None:
        self.folder, self.outcome = folder, outcome

    @property
    def snapshot(self) -> Path:
        """Of iteration 10."""
        return self.folder / "gangs" / "run" / "snapshots" / "small_iter_10.solverstate"

    @property
    def parameters(self) -> list[np.ndarray]:
        """Of the final model."""
        model = weights.read_model((self.folder / "m.caffemodel").read_bytes())
        return [weights.blob_array(blob)[1] for layer in model.layer for blob in layer.blobs]

    @property
    def losses(self) -> dict[int, float]:
        """Displayed iteration → loss."""
        return {s.iteration: s.loss for s in self.outcome.of(Stepped) if s.displayed}

    def equals(self, other: Trained) -> None:
        """Parameters within 1e-5; losses, where both displayed one, within 1e-5; test results alike."""
        assert len(self.parameters) == len(other.parameters) == 6
        for ours, theirs in zip(self.parameters, other.parameters):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
        common = self.losses.keys() & other.losses.keys()
        assert common
        for iteration in common:
            assert abs(self.losses[iteration] - other.losses[iteration]) < 1e-5, iteration
        last, others = (t.outcome.of(Tested)[-1].outputs for t in (self, other))
        assert last["accuracy"] == others["accuracy"] and abs(last["loss"][0] - others["loss"][0]) < 1e-5


@pytest.fixture(scope="module")
def engines(runtime, torch_python, runtime_env, tmp_path_factory) -> Engines:
    folder = tmp_path_factory.mktemp("lmdb")
    lmdbs = nets.write_lmdb(folder / "train", 48), nets.write_lmdb(folder / "test", 24, seed=9)
    return Engines(runtime, torch_python.parent.parent, runtime_env, tmp_path_factory.mktemp("trained"), lmdbs)


@pytest.fixture(scope="module")
def whole(engines: Engines) -> dict[str, Trained]:
    """20 steps by each engine."""
    return {name: engines.train(name) for name in ("caffe", "torch")}


def test_both_train_alike(whole: dict[str, Trained]) -> None:
    """From the seed: fillers, dropout masks and records are the same."""
    whole["torch"].equals(whole["caffe"])


@pytest.mark.parametrize(("first", "then"), [("caffe", "torch"), ("torch", "caffe"), ("torch", "torch")])
def test_either_continues_from_the_others_snapshot(
    engines: Engines, whole: dict[str, Trained], first: str, then: str
) -> None:
    engines.train(then, resume=whole[first].snapshot).equals(whole["caffe"])


def test_two_ranks_train_alike(engines: Engines) -> None:
    """Gradients are exchanged while the pass is under way; the ranks stay equal."""
    found = {name: engines.train(name, world=2) for name in ("caffe", "torch")}
    digests = {(c.iteration, c.digest) for c in found["torch"].outcome.of(Checked)}
    assert len(digests) == len({c.iteration for c in found["torch"].outcome.of(Checked)}) == 2
    found["torch"].equals(found["caffe"])


def test_caffes_own_faults_are_told_of_or_reproduced(engines: Engines) -> None:
    right, strict = (engines.train("torch", iterations=5, layer="BNLL", strict=asked) for asked in (False, True))
    (told,) = right.outcome.of(Started)
    assert told.notes == ("layer 'relu': real Caffe differs here because BNLL in place uses its output for its input",)
    assert strict.outcome.of(Started)[0].notes == ()
    caffes = engines.train("caffe", iterations=5, layer="BNLL")
    strict.equals(caffes)
    assert max(np.abs(ours - theirs).max() for ours, theirs in zip(right.parameters, caffes.parameters)) > 1e-4
