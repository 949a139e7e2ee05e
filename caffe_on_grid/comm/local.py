"""A world of one rank: nothing is exchanged, and no MPI is needed."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Optional

from caffe_on_grid.comm.api import Array


class Local:
    """The only rank of its job; see `caffe_on_grid.comm.api.Communicator`."""

    def __init__(self) -> None:
        """Rank 0 of 1."""
        self.rank = 0
        self.size = 1
        self.bytes = 0
        self.transport = "none"

    def allreduce(self, buffer: Array) -> None:
        """The sum over one rank is what is there."""

    def broadcast(self, buffer: Array, root: int = 0) -> None:
        """The root is this rank; ValueError for another."""
        if root != 0:
            raise ValueError(f"root {root} in a world of one rank")

    def gather(self, value: Any) -> Optional[list[Any]]:
        """[value], as JSON gives it back; TypeError where it is not JSON-like."""
        return self.allgather(value)

    def allgather(self, value: Any) -> list[Any]:
        """[value], as JSON gives it back; TypeError where it is not JSON-like."""
        return [json.loads(json.dumps(value))]

    def barrier(self) -> None:
        """Every rank is here."""

    def close(self) -> None:
        """Nothing to leave."""

    def abort(self, code: int) -> None:
        """End this process at once with `code`."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
