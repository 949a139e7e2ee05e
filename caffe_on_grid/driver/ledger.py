"""The run's books: run.json, metrics.jsonl and the pointer to the latest run, kept in storage."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.metrics.jsonl import MetricsLog
from caffe_on_grid.spec import run
from caffe_on_grid.spec.run import RunRecord
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.registry import connect


class Ledger:
    """Writes what is to be kept of one run; every method raises what the storage raises."""

    def __init__(self, folder: str, pointer: Optional[str], copy: Optional[Path]) -> None:
        self.folder = folder
        self.run_json = paths.join(folder, "run.json")
        self.metrics_jsonl = paths.join(folder, "metrics.jsonl")
        self.metrics = MetricsLog(self._append)
        self._pointer = pointer
        self._copy = copy
        self._open = False

    def open(self, record: RunRecord, overwrite: bool) -> None:
        """Make the folder, say that the run is running, and point to it.

        ConfigError where the folder holds a run already, unless `overwrite`.
        """
        self._write_copy(record)
        storage = connect(self.folder)
        storage.make_folder(self.folder)
        if storage.exists(self.run_json) and not overwrite:
            raise ConfigError(f"{self.run_json} exists: this folder holds another run; choose another or --overwrite")
        if storage.exists(self.metrics_jsonl):
            storage.remove(self.metrics_jsonl)
        self._open = True
        self.write(record)
        if self._pointer:
            connect(self._pointer).write(f"{record.run_id}\n".encode(), self._pointer)

    @property
    def files(self) -> list[str]:
        """What is there of them."""
        return [self.run_json, self.metrics_jsonl] if self._open else []

    def write(self, record: RunRecord) -> None:
        """Replace run.json, whole or not at all, and the copy for the gateway."""
        self._write_copy(record)
        if self._open:
            connect(self.run_json).write(run.dumps(record).encode(), self.run_json)

    def _write_copy(self, record: RunRecord) -> None:
        if self._copy:
            uri = str(self._copy)
            connect(uri).write(run.dumps(record).encode(), uri)

    def _append(self, data: bytes) -> None:
        if self._open:
            connect(self.metrics_jsonl).append(data, self.metrics_jsonl)
