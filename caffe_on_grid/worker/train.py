"""The training loop: Caffe's Solver::Step and Solve, iteration by iteration, over all ranks."""

from __future__ import annotations

import hashlib
import math
import os
import resource
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from caffe_on_grid.engine.api import Array, Engine, StepResult
from caffe_on_grid.errors import GridError, TrainingFailed
from caffe_on_grid.spec import program
from caffe_on_grid.spec.report import Checked, Finished, Saved, Started, Stepped
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.patience import patiently
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.worker import evaluate
from caffe_on_grid.worker.assemble import Assembly, Inputs, reseed_value
from caffe_on_grid.worker.labels import LabelCheck
from caffe_on_grid.worker.publish import Publisher
from caffe_on_grid.worker.report import Pace, Reporter

REPORT_EVERY_S = 0.5


def run(assembly: Assembly, reporter: Reporter) -> None:
    """Train to max_iter, with Caffe's order of tests, steps and snapshots; ends with the final model in its place."""
    trainer = Trainer(assembly, reporter)
    reporter.send(started(assembly))
    solver, engine = assembly.solver, assembly.engine
    while engine.iteration < solver.max_iter:
        if test_due(solver, engine.iteration, final=False):
            trainer.test()
        trainer.step()
        trainer.check_due()
        if solver.snapshot and engine.iteration % solver.snapshot == 0:
            trainer.snapshot()
    trainer.finish()


def test_due(solver: Any, iteration: int, final: bool) -> bool:
    """Whether Caffe tests before step `iteration` (or, `final`, after the last one)."""
    due = solver.test_interval > 0 and iteration % solver.test_interval == 0
    return bool(due and (final or iteration > 0 or solver.test_initialization))


class Trainer:
    """One rank's training: the hooks of its engine, its counters, and what happens between steps."""

    def __init__(self, assembly: Assembly, reporter: Reporter) -> None:
        """Everything that the loop needs, derived from the assembly."""
        self.assembly = assembly
        self.reporter = reporter
        self.engine = assembly.engine
        self.solver = assembly.solver
        self.spec = assembly.spec
        assert assembly.train is not None
        self.inputs = assembly.train
        self.losses: deque[float] = deque(maxlen=max(1, self.solver.average_loss))
        self.labels = LabelCheck(self.inputs.label_uses, self.engine)
        self.publisher = Publisher()
        self.passes = assembly.manifest.test_passes if assembly.manifest else 0
        self.pace = Pace(REPORT_EVERY_S)
        self.taken = 0
        self.stepping_s = 0.0
        self.saved_at = -1

    # The engine's hooks.

    def on_start(self) -> None:
        """Parameters may be changed by the synchroniser."""
        self.reporter.at(self.engine.iteration, "compute")
        self.assembly.sync.before_step(self.engine.iteration, self.engine.params)

    def on_ready(self, first: int, last: int) -> None:
        """Some gradients are final."""
        self.assembly.sync.on_ready(self.engine.iteration, first, last, self.engine.grads)

    def on_gradients(self) -> None:
        """All gradients are final: exchange them."""
        self.reporter.at(self.engine.iteration, "exchange")
        self.assembly.sync.on_gradients(self.engine.iteration, self.engine.grads)
        self.reporter.at(self.engine.iteration, "compute")

    # The loop's parts.

    def batches(self) -> Iterator[Mapping[str, Array]]:
        """Batches as the engine asks for them, labels checked."""
        while True:
            self.reporter.at(self.engine.iteration, "data")
            batch = self.inputs.next()
            self.labels.check(batch)
            self.reporter.at(self.engine.iteration, "compute")
            self.taken += 1
            yield batch

    @property
    def samples(self) -> int:
        """Records consumed by this rank."""
        return self.taken * self.inputs.batch

    def step(self) -> None:
        """One iteration, reported."""
        begin = time.perf_counter()
        result = self.engine.step(self.batches(), self)
        self.stepping_s += time.perf_counter() - begin
        self.losses.append(result.loss)
        self.guard(result)
        self.publisher.poll()
        self.report(result)

    def guard(self, result: StepResult) -> None:
        """A loss that is not finite ends the job (--on-nan continue: goes on)."""
        done = self.engine.iteration - 1
        if not math.isfinite(result.loss) and self.spec.job.engine.on_nan == "stop":
            raise TrainingFailed(
                f"the loss is {result.loss} at iteration {done}; lower base_lr, set clip_gradients, "
                "or look for wrong labels and a missing scale or mean (--on-nan continue goes on regardless)"
            )

    def report(self, result: StepResult) -> None:
        """Send a Stepped line where `display` or the pace asks for one."""
        done = self.engine.iteration - 1  # Caffe numbers the iteration by the steps before it
        displayed = bool(self.spec.rank == 0 and self.solver.display and done % self.solver.display == 0)
        if not (self.pace.due(time.monotonic()) or displayed or self.engine.iteration == self.solver.max_iter):
            return
        waited, exchanged = self.inputs.seconds, self.assembly.sync.seconds
        self.reporter.send(
            Stepped(
                rank=self.spec.rank,
                time=time.time(),
                iteration=self.engine.iteration,
                loss=sum(self.losses) / len(self.losses),
                outputs=evaluate.as_tuples(result.outputs),
                lr=result.lr,
                samples=self.samples,
                seconds=self.stepping_s,
                data_s=waited,
                compute_s=max(0.0, self.stepping_s - waited - exchanged),
                exchange_s=exchanged,
                exchanged_bytes=self.assembly.comm.bytes,
                displayed=displayed,
            )
        )

    def test(self) -> None:
        """Test every TEST net over all ranks."""
        self.reporter.at(self.engine.iteration, "test")
        self.average_statistics()
        for index, inputs in enumerate(self.assembly.tests):
            tested = evaluate.one_pass(self.assembly, index, inputs)
            if tested is not None:
                self.reporter.send(tested)
        self.passes += 1

    def check_due(self) -> None:
        """Every `check_every` steps all ranks say what their parameters hash to."""
        every = self.spec.job.sync.check_every
        if every and self.engine.iteration % every == 0 and self.spec.world > 1:
            self.check()

    def check(self) -> str:
        """Hash all parameters, BatchNorm's sums averaged first; the driver compares the ranks."""
        self.average_statistics()
        digest = parameter_digest(self.engine)
        self.reporter.send(Checked(self.spec.rank, time.time(), self.engine.iteration, digest))
        return digest

    def average_statistics(self) -> None:
        """BatchNorm's running sums differ between ranks, which saw different batches: take their mean."""
        if self.spec.world > 1:
            for blob in self.engine.statistics:
                self.assembly.comm.allreduce(blob)
                np.divide(blob, self.spec.world, out=blob)

    def snapshot(self) -> None:
        """Save on rank 0, published while the next steps run; every rank starts its random stream afresh here."""
        self.reporter.at(self.engine.iteration, "snapshot")
        self.average_statistics()
        if self.spec.rank == 0:
            prefix = Path(self.solver.snapshot_prefix or "snapshot").name
            folder = paths.join(self.spec.run_folder, "snapshots")
            self.publisher.start(self.engine.save(prefix), folder, prefix, self.manifest(), self.reporter)
        self.saved_at = self.engine.iteration
        self.engine.reseed(reseed_value(self.spec, self.engine.iteration))

    def manifest(self) -> dict[str, Any]:
        """The manifest's fields that only the loop knows."""
        return {
            "iteration": self.engine.iteration,
            "world": self.spec.world,
            "seed": self.spec.seed,
            "run_id": self.spec.run_id,
            "batches": self.inputs.places.batches + self.taken,
            "batch": self.inputs.batch,
            "test_passes": self.passes,
            "solver_type": self.solver.type,
        }

    def finish(self) -> None:
        """Caffe's end of Solve: last snapshot, last test; then the final check and the model in its place."""
        iteration = self.engine.iteration
        if self.solver.snapshot_after_train and self.saved_at != iteration:
            self.snapshot()
        if test_due(self.solver, iteration, final=True):
            self.test()
        digest = self.check()
        self.publisher.finish()
        if self.spec.rank == 0:
            self.publish_model()
        self.assembly.comm.barrier()
        self.reporter.at(iteration, "done")
        self.reporter.send(finished(self.assembly, self.inputs, digest, self.samples))

    def publish_model(self) -> None:
        """The final model, exactly where the job wants it; a store that is away is waited for."""
        uri = self.spec.job.output.model
        if uri is None:
            return
        begin, local = time.perf_counter(), Path("final.caffemodel" + (".h5" if uri.endswith(".h5") else ""))
        self.engine.save_model(local)
        self.reporter.at(self.engine.iteration, "snapshot")
        program.end_in_order()
        try:
            patiently(lambda: connect(uri).publish(local, uri), lambda why: self.reporter.remark(f"the model is {why}"))
        except GridError as error:
            hint = f"; the snapshot of iteration {self.saved_at} holds it" * (self.saved_at == self.engine.iteration)
            raise TrainingFailed(f"the model could not be written: {error}{hint}") from error
        self.reporter.send(Saved(0, time.time(), self.engine.iteration, uri, time.perf_counter() - begin))


def parameter_digest(engine: Engine) -> str:
    """sha256 over all parameter blobs in net order."""
    digest = hashlib.sha256()
    for blob in engine.all_params():
        digest.update(np.ascontiguousarray(blob).data)
    return digest.hexdigest()


def finished(assembly: Assembly, inputs: Inputs, digest: str, samples: int) -> Finished:
    """The last line of a rank whose task ends well; `samples` are the records it took from `inputs`."""
    return Finished(
        rank=assembly.spec.rank,
        time=time.time(),
        iteration=assembly.engine.iteration,
        digest=digest,
        samples=samples,
        skipped=inputs.skipped,
        exchanged_bytes=assembly.comm.bytes,
        peak_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def started(assembly: Assembly) -> Started:
    """What this rank is, for the banner."""
    spec, solver, engine = assembly.spec, assembly.solver, assembly.engine
    inputs = assembly.train or assembly.tests[0]
    core = os.environ.get("OPENBLAS_CORETYPE", "detected")
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    return Started(
        rank=spec.rank,
        time=time.time(),
        host=spec.host or socket.gethostname(),
        pid=os.getpid(),
        engine=engine.name,
        mode="cpu" if spec.device.kind == "cpu" else f"gpu {spec.device.index} ({spec.device.name})",
        blas=f"{core}, {threads} thread{'s' if threads != '1' else ''}",
        transport=assembly.comm.transport,
        parameters=sum(int(p.size) for p in engine.params),
        batch=inputs.batch * max(1, solver.iter_size),
        records=inputs.records,
        first_iteration=engine.iteration,
        max_iterations=int(solver.max_iter),
        notes=tuple(engine.warnings),
        loss_weights=loss_weights(assembly),
    )


def loss_weights(assembly: Assembly) -> dict[str, float]:
    """Tops that count as losses, over all nets of the engine."""
    nets = [*([None] if assembly.train else []), *range(len(assembly.tests))]
    layers = (layer for net in nets for layer in assembly.engine.layers(net))
    return {top: weight for layer in layers for top, weight in zip(layer.tops, layer.loss_weights) if weight}
