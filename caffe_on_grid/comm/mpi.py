"""The ranks of one job over MPI: the only module that knows mpi4py."""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Callable, Optional

import numpy as np

from caffe_on_grid.comm.api import Array
from caffe_on_grid.errors import EnvironmentFault, TrainingFailed

PIECE_ELEMENTS = 1 << 28
"""Elements in one MPI call: 1 GiB of float32, far below the 2^31 − 1 of MPI's classic counts."""

_TELLING = re.compile(
    r"(UCX_TLS|UCX_NET_DEVICES|FI_PROVIDER|FI_.*_IFACE|MPIR_CVAR_(CH4_NETMOD|.*_ALGORITHM|NOLOCAL))\Z"
)


class World:
    """All ranks that `mpiexec` started; see `caffe_on_grid.comm.api.Communicator`.

    A rank that leaves Python without `close` (an exception that nobody caught, `sys.exit`) ends the others instead of
    leaving them in a collective. Exchanges raise TrainingFailed where MPI itself reports an error.

    Every collective is started without blocking and then tested for, giving the core away between tests: MPICH's own
    blocking calls spin. Measured for LeNet's 431,080 gradients on two cores: two ranks 1.1 ms either way; four ranks
    13 ms where blocking calls took more than 500 ms.
    """

    def __init__(self, piece_elements: int = PIECE_ELEMENTS) -> None:
        """Start MPI; raises EnvironmentFault where there is none."""
        self._mpi = _start()
        self._comm = self._mpi.COMM_WORLD
        self._piece = piece_elements
        self._pid = os.getpid()
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        self.bytes = 0
        self.transport = describe(self._mpi.Get_library_version(), os.environ)
        atexit.register(self._leave)

    def allreduce(self, buffer: Array) -> None:
        """Sum over all ranks, in place; every rank gets the same bits."""
        for piece in pieces(buffer, self._piece):
            self._finish("allreduce", partial(self._comm.Iallreduce, self._mpi.IN_PLACE, piece))
        self.bytes += buffer.nbytes

    def broadcast(self, buffer: Array, root: int = 0) -> None:
        """Copy root's buffer to every rank's, in place."""
        for piece in pieces(buffer, self._piece):
            self._finish("broadcast", partial(self._comm.Ibcast, piece, root))
        self.bytes += buffer.nbytes

    def gather(self, value: Any) -> Optional[list[Any]]:
        """Values of all ranks in rank order, on rank 0; TypeError where `value` is not JSON-like."""
        everyone = self.allgather(value)
        return everyone if self.rank == 0 else None

    def allgather(self, value: Any) -> list[Any]:
        """Values of all ranks in rank order; TypeError where `value` is not JSON-like."""
        mine = np.frombuffer(json.dumps(value).encode(), np.uint8)
        sizes = np.empty(self.size, np.int64)
        self._finish("allgather", partial(self._comm.Iallgather, np.array([mine.size], np.int64), sizes))
        everyone = np.empty(int(sizes.sum()), np.uint8)
        self._finish("allgather", partial(self._comm.Iallgatherv, mine, (everyone, sizes.tolist())))
        ends = np.cumsum(sizes)
        return [json.loads(everyone[end - size : end].tobytes()) for size, end in zip(sizes, ends)]

    def barrier(self) -> None:
        """Return when every rank has come."""
        self._finish("barrier", self._comm.Ibarrier)

    def close(self) -> None:
        """Leave in order; waits for all ranks, which must all call it. A second call does nothing."""
        if not self._mpi.Is_finalized():
            self._mpi.Finalize()

    def abort(self, code: int) -> None:
        """End every rank of the job at once with `code`."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(code)

    def _leave(self) -> None:
        if os.getpid() == self._pid and not self._mpi.Is_finalized():  # a forked child is no rank
            self.abort(1)

    def _finish(self, what: str, start: Callable[[], Any]) -> None:
        """Start a collective and return when this rank's part is over."""
        try:
            request = start()
            while not request.Test():
                os.sched_yield()
        except self._mpi.Exception as error:
            raise TrainingFailed(f"rank {self.rank}: MPI {what} failed: {error}; see the other ranks' logs") from error


def describe(library: str, environment: Mapping[str, str]) -> str:
    """What carries the messages, in words, from MPI's own description and the settings that choose transports."""
    version = re.search(r"MPICH Version:\s*(\S+)", library)
    device = re.search(r"MPICH Device:\s*(.+)", library)
    name = f"MPICH {version[1]}" if version else library.strip().splitlines()[0].split(",")[0]
    settings = [f"{key}={environment[key]}" for key in sorted(environment) if _TELLING.match(key)]
    return ", ".join([f"{name} ({device[1].strip()})" if device else name, *settings])


def pieces(buffer: Array, elements: int) -> Iterator[Array]:
    """Flat views of `buffer`, at most `elements` values each; ValueError if it is not C-contiguous."""
    if not buffer.flags.c_contiguous:
        raise ValueError("an exchanged buffer must be C-contiguous")
    flat = buffer.reshape(-1)
    for start in range(0, flat.size, elements):
        yield flat[start : start + elements]


def _start() -> Any:
    """The module mpi4py.MPI, initialised so that leaving Python does not wait for the other ranks."""
    try:
        import mpi4py

        mpi4py.rc.finalize = False
        mpi4py.rc.thread_level = "funneled"
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise EnvironmentFault(f"MPI cannot be loaded here: {error}; use a runtime with mpi4py and MPICH") from None
    return MPI
