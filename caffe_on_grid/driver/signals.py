"""SIGINT, SIGTERM and SIGHUP as errors in the main thread: the first one counts, later ones are ignored."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Optional

from caffe_on_grid.errors import SIGNALS, GridError, Signalled


class Signals:
    """While installed, the first signal is noted, and raised at the next `check`.

    It is not raised where it comes: a write that is broken off leaves a line half written and a file open.
    """

    def __init__(self) -> None:
        self.caught: Optional[GridError] = None
        self._at_once = False

    def install(self) -> None:
        """Take the signals over; pyspark takes SIGINT when a SparkContext is made, so call this again after that."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def check(self) -> None:
        """Raise the error of the signal that came, if one did."""
        if self.caught:
            raise self.caught

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is inside may wait long and writes nothing: a signal is raised where it comes, as Signalled."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def ignore(self) -> None:
        """From now on nothing disturbs the end of the job; whoever insists sends SIGKILL."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _handle(self, number: int, _: Optional[FrameType]) -> None:
        self.ignore()
        self.caught = SIGNALS[number](f"ended by {signal.Signals(number).name}")
        if self._at_once:
            raise Signalled(self.caught)
