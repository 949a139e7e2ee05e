"""A run in the cluster shown here as it goes: metrics.jsonl and run.json in storage, by the driver's own display."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Optional

from caffe_on_grid.errors import GridError
from caffe_on_grid.metrics import words
from caffe_on_grid.metrics.progress import Display
from caffe_on_grid.metrics.state import GangState, RankState
from caffe_on_grid.spec import report as reports
from caffe_on_grid.spec import run as records
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.spec.report import Report
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.registry import connect

LOOK_S = 1.0
"""Between two looks at the storage."""


class Follower:
    """Shows what a run's driver has written since the last look; a storage that is away for a moment is asked again."""

    def __init__(self, job: JobSpec, run_id: str, run_folder: str, display: Display) -> None:
        self._job, self._run_id, self._folder, self._display = job, run_id, run_folder, display
        self._tail = Tail(paths.join(run_folder, "metrics.jsonl"))
        self._state = GangState(job.tasks[0], job.cluster.executors)
        self._gangs = 0
        self._waiting: list[Report] = []
        """Reports that came before the driver had written who runs where."""
        self._placed = False
        self._looked = 0.0

    @property
    def stepped(self) -> bool:
        """Whether a step has been seen."""
        return self._state.stepped or self._gangs > 1

    def look(self, at_once: bool = False) -> None:
        """Read and show what is new, every LOOK_S seconds; or `at_once`, for the last time."""
        now = time.monotonic()
        if now - self._looked < LOOK_S and not at_once:
            return
        self._looked = now
        try:
            self.catch_up()
        except GridError:
            return  # the driver, which writes there, is the one to complain
        if self._placed and not at_once:
            self._display.tick(self._state, now)

    def catch_up(self) -> None:
        """Read and show what is new."""
        for line in self._tail.lines():
            self._take(line)
        if self._waiting and not self._placed:
            self._place()

    def _take(self, line: str) -> None:
        value = json.loads(line)
        if value["kind"] == "gang":
            self._gangs += 1
            self._state, self._placed = GangState(value["task"], self._job.cluster.executors), False
        elif value["kind"] in reports.KINDS:
            self._waiting.append(reports.from_line(line))
            if self._placed:
                self._show()

    def _place(self) -> None:
        """Say who runs where, once run.json has it, and show what came before."""
        record = read_record(self._folder)
        task = record.tasks[self._gangs - 1] if record and len(record.tasks) >= self._gangs > 0 else None
        started = next((r for r in self._waiting if isinstance(r, reports.Started)), None)
        if task is None or not task.ranks or started is None:
            return
        self._state.joined = {e.executor: _joined(e) for e in task.executors}
        self._state.ranks = {r.rank: _rank(r, started) for r in task.ranks}
        self._placed = True
        sync = words.sync_words(self._job.sync, self._state.world)
        self._display.lines(words.banner(self._state, self._run_id, sync, self._folder, self._job.output.model))
        self._show()

    def _show(self) -> None:
        shown, self._waiting = self._waiting, []
        for report in shown:
            self._count(report)
            if not isinstance(report, reports.Failed):  # run.json tells the cause at the end
                self._display.report(report, self._state)

    def _count(self, report: Report) -> None:
        if isinstance(report, reports.Stepped):
            # Ranks step together, and only rank 0's steps are kept: they stand for all.
            for rank in self._state.ranks.values():
                rank.step(replace(report, rank=rank.rank))
                rank.iteration = report.iteration
        elif isinstance(report, reports.Tested):
            self._state.tests[report.net] = report


def _joined(executor: records.ExecutorRecord) -> dict[str, Any]:
    return {"host": executor.host, "pid": executor.pid, "cpus": executor.cpus, "node": executor.node}


def _rank(rank: records.RankRecord, started: reports.Started) -> RankState:
    return RankState(
        rank.rank,
        rank.executor,
        rank.host,
        rank.local_rank,
        rank.device,
        0.0,
        started=replace(started, rank=rank.rank),
    )


def read_record(run_folder: str) -> Optional[records.RunRecord]:
    """What run.json says; None where there is none yet."""
    uri = paths.join(run_folder, "run.json")
    storage = connect(uri)
    return records.loads(storage.read(uri).decode(), uri) if storage.exists(uri) else None


class Tail:
    """The whole lines that a growing file has gained."""

    def __init__(self, uri: str) -> None:
        self._uri, self._read, self._rest = uri, 0, b""

    def lines(self) -> Iterator[str]:
        """Those that have come since the last call."""
        storage = connect(self._uri)
        if not storage.exists(self._uri):
            return
        size = storage.size(self._uri)
        if size > self._read:
            self._rest += b"".join(storage.pieces(self._uri, self._read, size - self._read))
            self._read = size
        *lines, self._rest = self._rest.split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines)
