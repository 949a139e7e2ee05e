"""One rank leaves in the way that argv names while the others wait in a collective for it."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

from caffe_on_grid.comm.mpi import World
from caffe_on_grid.sync.allreduce import AllReduce


def leave(world, how):
    if how == "abort":
        world.abort(7)
    if how == "raise":
        raise RuntimeError("a bug in rank 1")
    if how == "exit":
        sys.exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)


def main():
    how = sys.argv[1]
    world = World()
    world.barrier()
    if world.rank == 1:
        leave(world, how)
    AllReduce(world, 1 << 20).on_gradients(0, [np.ones(1000, np.float32)])
    print("unreachable")
    world.close()


if __name__ == "__main__":
    main()
