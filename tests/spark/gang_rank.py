"""A rank of the tests' own, in place of the worker: `gang_rank.py SCENARIO RANK` misbehaves on RANK only.

It reports as the worker does and runs in the runtime's Python.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from caffe_on_grid.spec import codec, report
from caffe_on_grid.spec.rank import RankSpec
from caffe_on_grid.spec.report import Failed, Finished, Progress, Started, Stepped

CHECK = "F1129 18:45:10.123456  4711 net.cpp:123] Check failed: 1 == 2 (1 vs. 2) bottom of 'ip' has a strange shape"


class Rank:
    """The worker's side of the contract with its agent."""

    def __init__(self, number: int) -> None:
        folder = Path(os.environ["CAFFE_ON_GRID_GANG_DIR"])
        self.spec = codec.loads(RankSpec, (folder / f"rank-{number}.json").read_text())
        assert str(Path.cwd()) == self.spec.scratch
        assert self.spec.rank == number
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.spec.report_socket)
        with Path(self.spec.progress_file).open("r+b") as stream:
            self.progress = mmap.mmap(stream.fileno(), Progress.SIZE)

    def say(self, said: report.Report) -> None:
        self.socket.sendall(report.to_line(said).encode())

    def at(self, iteration: int, phase: str) -> None:
        Progress(iteration, phase, time.monotonic()).pack_into(self.progress)

    def start(self, transport: str) -> None:
        blas = f"{os.environ.get('OPENBLAS_CORETYPE')} {os.environ['OPENBLAS_NUM_THREADS']}"
        mode = f"{self.spec.device.kind} {os.environ.get('UCX_TLS')} {os.environ.get('CUDA_VISIBLE_DEVICES')}"
        me = (self.spec.rank, time.time(), socket.gethostname(), os.getpid())
        self.say(Started(*me, f"python {sys.version_info[1]}", mode, blas, transport, 0, 1, 0, 100, 200))

    def step(self, iteration: int) -> None:
        self.at(iteration, "compute")
        self.say(Stepped(self.spec.rank, time.time(), iteration, 1.5, {}, 0.1, 1, 1.0, 0, 0, 0, 0))

    def finish(self, iteration: int, digest: str) -> None:
        self.at(iteration, "done")
        self.say(Finished(self.spec.rank, time.time(), iteration, digest, 1, 0, 0, 1))


def exchange(world: int) -> str:
    """A real allreduce; says what the sum was."""
    if world == 1:
        return "none"
    import numpy as np
    from mpi4py import MPI

    values = np.full(1 << 16, MPI.COMM_WORLD.rank + 1, np.float32)
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, values)
    return f"{values[0]:.0f} {values[-1]:.0f} of {MPI.COMM_WORLD.size}"


def feeder() -> None:
    """A process of the rank's own, in a session of its own, that ends for nobody."""
    subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.2; done"], start_new_session=True)


def misbehave(scenario: str, rank: Rank) -> None:
    if scenario == "abort":
        os.write(2, (CHECK + "\n*** Check failure stack trace: ***\n    @ 0x7f (unknown)\n").encode())
        os.abort()
    if scenario == "loader":
        os.write(2, b"python: error while loading shared libraries: libmpi.so.12: cannot open shared object file\n")
        os._exit(127)
    rank.start("none")
    for iteration in range(101, 104):
        rank.step(iteration)
    if scenario == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if scenario == "mute":
        rank.socket.close()
    if scenario == "report":
        rank.say(Failed(rank.spec.rank, time.time(), 103, "DataError", "record 17 cannot be decoded"))
        os._exit(1)
    if scenario == "garbage":
        rank.socket.sendall(b"not a report\n")
    time.sleep(600)


def main() -> None:
    scenario, bad = sys.argv[1], int(sys.argv[2])
    rank = Rank(int(os.environ.get("PMI_RANK") or os.environ["CAFFE_ON_GRID_RANK"]))
    if scenario != "finish":
        feeder()
        if rank.spec.rank == bad:
            misbehave(scenario, rank)
        rank.start("none")
        time.sleep(600)
    print("hello from rank", rank.spec.rank)
    rank.start(exchange(rank.spec.world))
    rank.step(101)
    time.sleep(2.2)  # two beats of the agent's, whatever delays one
    rank.finish(101, "d")
    if rank.spec.rank == bad:
        os._exit(3)


main()
