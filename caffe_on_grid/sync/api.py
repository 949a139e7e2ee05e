"""What a synchroniser is: the rule by which ranks exchange gradients or parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Blobs = Sequence[npt.NDArray[np.float32]]


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

    def allreduce(self, buffer: npt.NDArray[Any]) -> None:
        """Sum over all ranks, in place."""
