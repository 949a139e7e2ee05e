"""Programs under a guard, as the agent holds them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

STOP_S = 4.0
"""Guards that have not ended their program by then are killed, and their program with them."""


class Guarded:
    """One program, its guard, and the pipe whose end is the guard's signal. Make it in the main thread."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        options: Sequence[str] = (),
    ) -> None:
        guard = [sys.executable, "-m", "caffe_on_grid.gang.guard", "--watch-stdin", *options, "--", *command]
        self.name = Path(command[0]).name
        self.log = log
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                guard,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )

    def code(self) -> int | None:
        """The program's exit code (128 + signal); None while it or anything it started runs."""
        return self._guard.poll()

    def output(self) -> str:
        """What it printed so far."""
        return self.log.read_text(errors="replace")

    def tell_end(self) -> None:
        """Tell the guard to end everything below it."""
        if self._guard.stdin is not None and self.code() is None:
            with contextlib.suppress(BrokenPipeError):  # it ended just now
                self._guard.stdin.write(b".")
                self._guard.stdin.flush()

    def await_end(self, deadline: float) -> None:
        """Wait for the guard until monotonic `deadline`, then kill it."""
        try:
            self._guard.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()


def end(guarded: Iterable[Guarded]) -> None:
    """End them all, at once, and whatever they have started."""
    programs = list(guarded)
    for program in programs:
        program.tell_end()
    deadline = time.monotonic() + STOP_S
    for program in programs:
        program.await_end(deadline)
