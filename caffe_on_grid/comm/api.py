"""What a communicator is: the ranks of one job and how they exchange buffers and small values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Protocol

import numpy as np

if TYPE_CHECKING:  # numpy.typing came with 1.20; the Caffe runtime has 1.19
    import numpy.typing as npt

    Array = npt.NDArray[Any]
else:
    Array = np.ndarray


class Communicator(Protocol):
    """All ranks call the same collectives in the same order."""

    rank: int
    size: int
    bytes: int
    """Payload that this rank has given to allreduce and broadcast so far."""
    transport: str
    """What carries the messages, in words, e.g. "MPICH 4.3.2 (ch4:ucx), UCX_TLS=tcp,self"; "none" for one rank."""

    def allreduce(self, buffer: Array) -> None:
        """Sum over all ranks, in place; `buffer` is C-contiguous."""

    def broadcast(self, buffer: Array, root: int = 0) -> None:
        """Copy root's buffer to every rank's, in place."""

    def gather(self, value: Any) -> Optional[list[Any]]:
        """JSON-like values of all ranks in rank order, on rank 0; None elsewhere."""

    def allgather(self, value: Any) -> list[Any]:
        """The same, on every rank."""

    def barrier(self) -> None:
        """Return when every rank has come."""

    def close(self) -> None:
        """Leave in order; all ranks call it."""

    def abort(self, code: int) -> None:
        """End every rank of the job at once."""
