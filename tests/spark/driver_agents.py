"""Agents for the driver's tests: barrier tasks that speak the real channel and pretend to have ranks.

The job's name says what goes wrong. They run in Spark's Python workers.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pyspark import BarrierTaskContext

from caffe_on_grid.comm.channel import dial
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec import report as reports

STEPS = 5
SHA = "ab" * 32


def run(plan):
    """One agent with one rank."""
    return Pretender(plan).run()


class Pretender:
    def __init__(self, plan):
        self.plan = plan
        self.what = plan.job.cluster.name
        self.context = BarrierTaskContext.get()
        self.rank = self.context.partitionId()
        self.world = len(self.context.getTaskInfos())
        self.host = f"node-{self.rank}"

    def run(self):
        if self.what == "bug" and self.rank == 1:
            raise ConfigError("/etc/site.yaml: what is here cannot be used")
        self.channel = dial(self.plan.driver, self.plan.key, 10)
        self.send(type="joined", executor=self.rank, host=self.host, pid=os.getpid(), cpus=1, devices=[])
        self.context.barrier()
        if self.rank == 0:
            self.send(type="placed", ranks=[self.place(r) for r in range(self.world)], runtime={})
        self.started()
        getattr(self, self.what.replace("-", "_"), self.well)()
        self.send(type="left", executor=self.rank, ok=True)
        self.channel.close()
        return []

    def place(self, rank):
        device = {"kind": "cpu", "index": rank}
        return {"rank": rank, "executor": rank, "host": f"node-{rank}", "local_rank": 0, "device": device}

    def send(self, **message):
        self.channel.send(message)

    def report(self, cls, *values, at=None, **named):
        line = reports.to_line(cls(self.rank, at or time.time(), *values, **named))
        self.send(type="report", line=line)

    def started(self):
        values = (
            self.host,
            os.getpid(),
            "caffe 1.0.0",
            "cpu",
            "Generic, 1 thread",
            "none",
            431080,
            64,
            60000,
            0,
            STEPS,
        )
        self.report(reports.Started, *values, notes=("solver_mode is unset: the CPU is taken",))

    def step(self, iteration):
        done, seconds = iteration * 64, iteration * 0.5
        self.report(
            reports.Stepped, iteration, 2.0 / iteration, {"loss": (2.0 / iteration,)}, 0.01, done, seconds,
            seconds * 0.1, seconds * 0.7, seconds * 0.2, iteration * 1000, displayed=True,
        )  # fmt: skip

    def finish(self, digest=SHA):
        self.report(reports.Finished, STEPS, digest, STEPS * 64, 1, STEPS * 1000, 100)

    def fail(self, message, at):
        self.report(reports.Failed, 3, "DataError", message, self.host, ("F0101 Check failed: x",), "/log", at=at)

    def hear_stop(self):
        """Wait to be told; then do as agents do: leave badly."""
        message = self.channel.receive(30)
        (Path(self.plan.run_folder) / f"stopped-{self.rank}").write_text(message["reason"])
        raise ConfigError("told to stop")

    def well(self):
        for iteration in range(1, STEPS + 1):
            self.step(iteration)
        if self.rank == 0:
            self.report(reports.Tested, STEPS, 0, {"accuracy": (0.75,), "loss": (0.5,)}, 10, 0.5)
            if self.plan.task == "train" and self.plan.job.output.model:
                Path(self.plan.job.output.model).write_bytes(b"model")
                self.report(reports.Saved, STEPS, self.plan.job.output.model, 0.1)
        self.finish()

    def differ(self):
        self.step(1)
        self.report(reports.Checked, 1, SHA if self.rank == 0 else "cd" * 32)
        self.hear_stop()

    def differ_at_the_end(self):
        self.finish(SHA if self.rank == 0 else "cd" * 32)

    def late_cause(self):
        """Rank 1 fails after rank 0, but is heard first."""
        if self.rank == 1:
            self.fail("the other rank has gone", 1000.5)
        self.context.barrier()
        if self.rank == 0:
            self.fail("undecodable record 17", 1000.0)
        self.hear_stop()

    def vanish(self):
        self.step(2)
        self.context.barrier()  # rank 0 has said who is where: with rank 1's death Spark ends it, too
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self.channel.receive(30)

    def hang(self):
        phase, since = ("exchange" if self.rank == 0 else "compute"), time.monotonic()
        while self.channel.receive(0.3) is None:
            beat = {"rank": self.rank, "iteration": 3, "phase": phase, "age_s": time.monotonic() - since}
            self.send(type="beat", executor=self.rank, ranks=[beat])
        raise ConfigError("told to stop")

    def no_report(self):
        if self.rank == 0:
            self.finish()

    def wait(self):
        self.step(1)
        (Path(self.plan.run_folder) / f"waiting-{self.rank}").write_text(str(os.getpid()))
        self.hear_stop()
