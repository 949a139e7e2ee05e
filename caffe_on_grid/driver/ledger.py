"""The run's books: run.json, metrics.jsonl and the pointer to the latest run, kept in storage.

Once they are open a thread of their own writes them: a store that is slow, full or away holds up neither the watch over
the gang nor its training. What could not be written waits here and is tried again until the run has ended.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError, EnvironmentFault, GridError
from caffe_on_grid.metrics.jsonl import MetricsLog
from caffe_on_grid.spec import run
from caffe_on_grid.spec.run import RunRecord
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.registry import connect

FLUSH_S = 1.0
"""Between two writes; more where a write takes long."""
SHARE = 4.0
"""After a write that took a second it rests so many."""
AGAIN_S = 30.0
"""The longest rest after a write that failed."""
TOLD_S = 10.0
"""Trouble that passes sooner is not worth a word."""
KEPT_BYTES = 64 << 20
"""Lines that wait; what comes when there are more is lost. Enough for hours."""


class Ledger:
    """Writes what is to be kept of one run: `open` it, `write` and add to `metrics` while it goes on, `end` it."""

    def __init__(self, folder: str, pointer: Optional[str], copy: Optional[Path]) -> None:
        self.folder = folder
        self.run_json = paths.join(folder, "run.json")
        self.metrics_jsonl = paths.join(folder, "metrics.jsonl")
        self.metrics = MetricsLog(self._line)
        self._pointer, self._copy = pointer, copy
        self._open = False
        self._changed = threading.Condition()
        self._lines = bytearray()
        self._lost = 0
        self._record: Optional[RunRecord] = None
        self._size = self._tried = 0
        """What metrics.jsonl is known to have, and what an append that failed may have added to it."""
        self._hurry = False
        self._fault: Optional[GridError] = None
        self._fault_since: Optional[float] = None
        self._began: Optional[float] = None
        """Of the write under way."""
        self._told = False

    def open(self, record: RunRecord, overwrite: bool) -> None:
        """Make the folder, say that the run is running, and point to it; raises what the storage raises.

        ConfigError where the folder holds a run already, unless `overwrite`.
        """
        self.write_copy(record)
        storage = connect(self.folder)
        storage.make_folder(self.folder)
        if storage.exists(self.run_json) and not overwrite:
            raise ConfigError(f"{self.run_json} exists: this folder holds another run; choose another or --overwrite")
        if storage.exists(self.metrics_jsonl):
            storage.remove(self.metrics_jsonl)
        storage.write(_text(record), self.run_json)
        self._open = True
        threading.Thread(target=self._keep, name="keep the books", daemon=True).start()
        if self._pointer:
            connect(self._pointer).write(f"{record.run_id}\n".encode(), self._pointer)

    @property
    def files(self) -> list[str]:
        """What is there of them."""
        return [self.run_json, self.metrics_jsonl] if self._open else []

    def write(self, record: RunRecord) -> None:
        """Have run.json replaced, whole or not at all."""
        with self._changed:
            self._record = record if self._open else None

    def write_copy(self, record: RunRecord) -> None:
        """Replace the copy for the gateway, if one is wanted."""
        if self._copy:
            connect(str(self._copy)).write(_text(record), str(self._copy))

    def trouble(self) -> Optional[GridError]:
        """What keeps the books from being written, once in a run and when it has lasted TOLD_S; else None."""
        since = self._fault_since or self._began
        if self._told or since is None or time.monotonic() - since < TOLD_S:
            return None
        self._told = True
        return self._fault or self._mute()

    def end(self, record: RunRecord, within_s: float) -> None:
        """Write all that waits, then `record`; raises what keeps that from being done within about `within_s`."""
        deadline = time.monotonic() + within_s
        self._settle(deadline)
        if self._lost:
            raise EnvironmentFault(f"{self.metrics_jsonl}: {self._lost} lines are lost: it could not be written to")
        self.write(record)
        self._settle(deadline)
        self.write_copy(record)

    def give_up(self, record: RunRecord, within_s: float) -> None:
        """After an `end` that failed: leave out what could not be written, and try `record` all the same."""
        with self._changed:
            self._lines.clear()
        self.write(record)
        self._settled(time.monotonic() + within_s)
        with suppress(GridError):  # `record` is about that
            self.write_copy(record)

    def _mute(self) -> GridError:
        return EnvironmentFault(f"{self.folder}: the store gives no answer; see whether it is well")

    def _settle(self, deadline: float) -> None:
        if not self._settled(deadline):
            raise self._fault or self._mute()

    def _settled(self, deadline: float) -> bool:
        """Wait until nothing waits to be written."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not (self._lines or self._record), deadline - time.monotonic())

    # -- metrics.jsonl's lines come in here, in the driver's main thread

    def _line(self, line: str) -> None:
        data = line.encode()
        with self._changed:
            if not self._open or len(self._lines) + len(data) > KEPT_BYTES:
                self._lost += self._open
            else:
                self._lines += data

    # -- the thread

    def _keep(self) -> None:
        rest_s = FLUSH_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._hurry, rest_s)
                hurry, self._hurry = self._hurry, False
            rest_s = self._work(FLUSH_S if hurry else min(2 * rest_s, AGAIN_S))

    def _work(self, again_s: float) -> float:
        """Write what waits; how long to rest then (`again_s` where it failed)."""
        began = self._began = time.monotonic()
        try:
            self._write_record()
            self._write_lines()
        except Exception as error:  # whatever it is, the training is worth more; `trouble` and `end` tell of it
            self._fault_since = self._fault_since or began
            self._fault = _bare(error, self.folder)
            return again_s
        finally:
            self._began = None
        self._fault = self._fault_since = None
        return max(FLUSH_S, SHARE * (time.monotonic() - began))

    def _write_record(self) -> None:
        record = self._record
        if record is None:
            return
        connect(self.run_json).write(_text(record), self.run_json)
        with self._changed:
            if self._record is not record:
                return
            self.write_copy(record)
            self._record = None
            self._changed.notify_all()

    def _write_lines(self) -> None:
        if self._tried:
            self._look()
        with self._changed:
            data = bytes(self._lines)
        if data:
            self._tried = len(data)
            connect(self.metrics_jsonl).append(data, self.metrics_jsonl)
            self._written(len(data))

    def _look(self) -> None:
        """See how much of what was to be appended has reached the file, so that no line is in it twice."""
        storage = connect(self.metrics_jsonl)
        size = storage.size(self.metrics_jsonl) if storage.exists(self.metrics_jsonl) else 0
        came = size - self._size
        self._written(came if 0 <= came <= self._tried else 0)
        self._size = size

    def _written(self, count: int) -> None:
        self._size, self._tried = self._size + count, 0
        with self._changed:
            del self._lines[:count]
            self._changed.notify_all()


def _text(record: RunRecord) -> bytes:
    return run.dumps(record).encode()


def _bare(error: Exception, folder: str) -> GridError:
    """The error without its traceback: in the frames of that a file may be open, which HDFS then gives to no other."""
    if isinstance(error, GridError):
        return type(error)(str(error))
    return EnvironmentFault(f"{folder}: unexpected {type(error).__name__}: {error}")
