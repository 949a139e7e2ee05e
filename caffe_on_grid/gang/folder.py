"""The private folder of one executor's ranks: what they are told, where they report, how they ended, their logs."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from caffe_on_grid.spec import codec
from caffe_on_grid.spec.rank import RankSpec
from caffe_on_grid.spec.report import Progress

SOCKET = "reports.sock"


class GangFolder:
    """A folder that only this user may enter; `remove` it afterwards."""

    def __init__(self, parent: Optional[Path] = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="caffe-on-grid-gang-", dir=parent))

    def prepare(self, ranks: Iterable[RankSpec]) -> None:
        """Write what each rank needs before it starts."""
        for spec in ranks:
            Path(spec.scratch).mkdir()
            self.progress_file(spec.rank).write_bytes(bytes(Progress.SIZE))
            self._file(spec.rank, "json").write_text(codec.dumps(spec))

    def listen(self) -> socket.socket:
        """The socket that ranks report to. Bound by way of a descriptor: a Unix address holds 107 bytes only."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            made.bind(f"/proc/self/fd/{directory}/{SOCKET}")
        finally:
            os.close(directory)
        made.listen(64)
        made.setblocking(False)
        return made

    def scratch(self, rank: int) -> Path:
        """The rank's own folder and working directory."""
        return self.path / f"rank-{rank}"

    def progress_file(self, rank: int) -> Path:
        """The file that the rank maps."""
        return self._file(rank, "progress")

    def progress(self, rank: int) -> Progress:
        """Where the rank is."""
        return Progress.unpack_from(self.progress_file(rank).read_bytes())

    def exit_of(self, rank: int) -> Optional[int]:
        """Exit code of a rank that ended by itself (negative: the signal); None while it runs or if it was ended."""
        path = self._file(rank, "exit")
        return int(path.read_text()) if path.exists() else None

    def log(self, rank: int) -> Path:
        """The rank's output."""
        return self._file(rank, "log")

    def remove(self) -> None:
        """Delete it all."""
        shutil.rmtree(self.path, ignore_errors=True)  # a guard that outlived a killed agent may be at it too

    def _file(self, rank: int, suffix: str) -> Path:
        return self.path / f"rank-{rank}.{suffix}"
