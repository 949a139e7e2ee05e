"""What a synchroniser is: the rule by which ranks exchange gradients or parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:  # numpy.typing came with 1.20; the Caffe runtime has 1.19
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Floats = npt.NDArray[np.float32]
else:
    Array = Floats = np.ndarray

Blobs = Sequence[Floats]


class Synchroniser(Protocol):
    """One rank's side of the exchange."""

    seconds: float
    """Spent in exchanges so far."""

    def before_step(self, iteration: int, params: Blobs) -> None:
        """Parameters may be changed (averaging, elastic rules)."""

    def on_ready(self, iteration: int, first: int, last: int, grads: Blobs) -> None:
        """The gradients of blobs first..last are final: their exchange may begin."""

    def on_gradients(self, iteration: int, grads: Blobs) -> None:
        """All are final; returns when `grads` hold the mean over the world."""

    def close(self) -> None:
        """Finish what is under way and let go."""


class Exchange(Protocol):
    """The part of a communicator that synchronisers use (see caffe_on_grid.comm.api)."""

    rank: int
    size: int

    def allreduce(self, buffer: Array) -> None:
        """Sum over all ranks, in place."""
