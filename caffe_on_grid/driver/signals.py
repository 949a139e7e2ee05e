"""SIGINT, SIGTERM and SIGHUP as errors in the main thread: the first one is raised, later ones are ignored."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Optional

from caffe_on_grid.errors import GridError, Interrupted, Terminated

_ERRORS: dict[int, type[GridError]] = {
    signal.SIGINT: Interrupted,
    signal.SIGTERM: Terminated,
    signal.SIGHUP: Terminated,
}


class Signals:
    """While installed, the first signal raises its error; `check` raises it again, should a library have dropped it."""

    def __init__(self) -> None:
        self._caught: Optional[GridError] = None

    def install(self) -> None:
        """Take the signals over; pyspark takes SIGINT when a SparkContext is made, so call this again after that."""
        for number in _ERRORS:
            signal.signal(number, self._handle)

    def check(self) -> None:
        """Raise the error of the signal that came, if one did."""
        if self._caught:
            raise self._caught

    def ignore(self) -> None:
        """From now on nothing disturbs the end of the job; whoever insists sends SIGKILL."""
        for number in _ERRORS:
            signal.signal(number, signal.SIG_IGN)

    def _handle(self, number: int, _: Optional[FrameType]) -> None:
        self.ignore()
        self._caught = _ERRORS[number](f"ended by {signal.Signals(number).name}")
        raise self._caught
