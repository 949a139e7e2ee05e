"""Starting one executor's ranks: a lone rank directly, several executors' ranks through Hydra."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

from caffe_on_grid.errors import EnvironmentFault, GridError
from caffe_on_grid.gang import hydra
from caffe_on_grid.gang.folder import GangFolder
from caffe_on_grid.gang.placement import Facts, Placement
from caffe_on_grid.gang.processes import Guarded

LAUNCH_S = 60.0
"""For mpiexec to print its proxies."""

_EXEC = 'exec "$CAFFE_ON_GRID_PYTHON" "$@"'
_RANK = ("-m", "caffe_on_grid.gang.guard", "--rank", "--", "/bin/sh", "-c", _EXEC, "rank")


class Told(Exception):
    """An error (`cause`) of which the driver knows already, or will hear from another executor."""

    def __init__(self, cause: GridError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass
class Launch:
    """What is started on one executor; `programs` grows as it is."""

    folder: GangFolder
    everyone: Sequence[Facts]
    placed: Placement
    executor: int
    base: dict[str, str]
    """Environment of mpiexec."""
    environment: dict[str, str]
    """Environment of the ranks."""
    arguments: Sequence[str]
    """Of the runtime's Python, in each rank."""
    programs: list[Guarded] = field(default_factory=list)

    def start(self, gather: Callable[[str], list[str]]) -> None:
        """Start this executor's ranks; all executors call it, each gathers once (a world of one: not at all)."""
        if self.placed.world == 1:
            self._start_alone()
            return
        lines, error = self._start_mpiexec() if self.executor == 0 else ([], None)
        lines = json.loads(gather(json.dumps(lines))[0])
        if error is not None:
            raise error
        if not lines:
            raise Told(EnvironmentFault("executor 0 could not start mpiexec"))
        command = hydra.proxy_command(lines[self.executor], self._runtime)
        self._add(command, self.environment, "proxy.log", ("--remove", str(self.folder.path)))

    @property
    def _runtime(self) -> Path:
        return Path(self.everyone[self.executor].runtime)

    def _start_alone(self) -> None:
        command = [str(self._runtime / "bin" / "python"), *self.arguments]
        environment = {**self.environment, "CAFFE_ON_GRID_RANK": "0"}
        self._add(command, environment, "guard.log", ("--rank", "--remove", str(self.folder.path)))

    def _start_mpiexec(self) -> tuple[list[str], Optional[EnvironmentFault]]:
        """Start mpiexec and wait for its launch lines; an error is returned, for the others wait in gather."""
        counts = self.placed.counts(len(self.everyone))
        address = self.everyone[0].address
        command = hydra.command(self._runtime, address, counts, (*_RANK, *self.arguments))
        mpiexec = self._add(command, self.base, "mpiexec.log")
        deadline = time.monotonic() + LAUNCH_S
        while mpiexec.code() is None and time.monotonic() < deadline:
            lines = hydra.launch_lines(mpiexec.output())
            if lines is not None:
                return lines, None
            time.sleep(0.01)
        said = " ".join(mpiexec.output().split())[-500:] or "no output"
        return [], EnvironmentFault(f"mpiexec on {socket.gethostname()} could not start the ranks: {said}")

    def _add(
        self, command: Sequence[str], environment: dict[str, str], log: str, options: Sequence[str] = ()
    ) -> Guarded:
        path = self.folder.path
        self.programs.append(Guarded(command, environment, path, path / log, options))
        return self.programs[-1]
