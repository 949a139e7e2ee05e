"""How a rank speaks: report lines over its agent's socket, and a mapped word of progress that costs nothing."""

from __future__ import annotations

import mmap
import socket
import time
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import CATEGORIES, GridError
from caffe_on_grid.spec.rank import RankSpec
from caffe_on_grid.spec.report import Failed, Progress, Remarked, Report, to_line


class Reporter:
    """Sends reports and keeps the progress file; both work from the thread that steps the solver."""

    def __init__(self, spec: RankSpec) -> None:
        """Connect to the agent; paths are relative to the working directory, which is the rank's scratch folder."""
        self.spec = spec
        self.iteration = 0
        self.stepped = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(60)
        self._socket.connect(spec.report_socket)
        with Path(spec.progress_file).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), Progress.SIZE)
        self.at(0, "starting")

    def at(self, iteration: int, phase: str) -> None:
        """Say where this rank is (one of spec.report.PHASES)."""
        self.iteration = iteration
        Progress(iteration, phase, time.monotonic()).pack_into(self._map)

    def send(self, report: Report) -> None:
        """Send one report line."""
        self._socket.sendall(to_line(report).encode())

    def remark(self, message: str) -> None:
        """Send a one-line warning."""
        self.send(Remarked(self.spec.rank, time.time(), message))

    def failed(self, error: BaseException) -> None:
        """Send the last line of a rank that ends badly."""
        known = type(error).__name__ in CATEGORIES
        self.send(
            Failed(
                rank=self.spec.rank,
                time=time.time(),
                iteration=self.iteration,
                category=type(error).__name__ if known else "TrainingFailed",
                message=str(error) if isinstance(error, GridError) else f"{type(error).__name__}: {error}",
                host=self.spec.host,
            )
        )

    def close(self) -> None:
        """End the conversation."""
        self._socket.close()


class Pace:
    """True at most once per `every_s` seconds."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self._last: Optional[float] = None

    def due(self, now: float) -> bool:
        """Whether it is time again."""
        if self._last is not None and now - self._last < self.every_s:
            return False
        self._last = now
        return True
