"""The run's books on a real HDFS whose NameNode is killed and started again, or stands still, while a gang trains."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from caffe_on_grid.driver.ledger import Ledger
from caffe_on_grid.spec import run
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.storage.registry import connect


def record(folder: str, **changes) -> run.RunRecord:
    values = {"run_id": "r", "outcome": "running", "started": "2026-01-01T00:00:00Z", "run_folder": folder, "seed": 1}
    job = JobSpec(("train",), "solver.prototxt")
    return run.RunRecord(**{**values, **changes}, job=job, versions=run.Versions("0.1.0", "3.11.7"))


class Books:
    """A ledger that is given lines as a training gives them, and what it told of trouble."""

    def __init__(self, folder: str) -> None:
        self.kept, self.lines, self.told = Ledger(folder, None, None), 0, []
        self.kept.open(record(folder), overwrite=False)

    def train(self, until) -> None:
        """Lines until `until`, or a minute has passed; no one of them may take long."""
        end = time.monotonic() + 60
        while not until() and time.monotonic() < end:
            began = time.monotonic()
            self.kept.metrics.gang(f"task {self.lines}", "r", 1.0)
            self.lines += 1
            self.told += filter(None, [self.kept.trouble()])
            assert time.monotonic() - began < 5  # the tries of a store that is away take longer
            time.sleep(0.005)

    def end(self) -> list[str]:
        """The tasks in metrics.jsonl after the end, with run.json closed."""
        folder = self.kept.folder
        self.kept.end(record(folder, outcome="done", exit_code=0), 300)
        assert run.loads(connect(folder).read(self.kept.run_json).decode()).outcome == "done"
        lines = connect(folder).read(self.kept.metrics_jsonl).decode().splitlines()
        return [json.loads(line)["task"] for line in lines]


@pytest.mark.parametrize(("door", "how"), [("hdfs", "killed"), ("webhdfs", "standing still")])
def test_the_name_node_is_away_for_a_while(grid, hdfs_folder, monkeypatch, door, how):
    """One that was killed may have the file open: after a minute it is another writer's."""
    for name in ("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "HADOOP_TOKEN_FILE_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    books = Books(f"{getattr(grid, door)}{hdfs_folder}/run")
    uri = books.kept.metrics_jsonl
    books.train(lambda: connect(uri).exists(uri))
    name_node = int((grid.home / "pids" / "namenode").read_text())
    os.kill(name_node, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    try:
        books.train(lambda: books.told)
    finally:
        if how == "killed":
            grid.script("start")
        else:
            os.kill(name_node, signal.SIGCONT)
    assert len(books.told) == 1
    assert "does not answer" in str(books.told[0]) or "gives no answer" in str(books.told[0])
    assert books.end() == [f"task {number}" for number in range(books.lines)]
    assert len(books.told) == 1


def test_an_append_that_was_left_open_is_taken_over(grid, hdfs_folder, monkeypatch):
    """HDFS opens a file again for its writer never, for another after a minute."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    books = Books(f"{grid.hdfs}{hdfs_folder}/run")
    uri = books.kept.metrics_jsonl
    books.train(lambda: connect(uri).exists(uri))
    writer, deadline = None, time.monotonic() + 20
    while writer is None:
        assert time.monotonic() < deadline
        try:
            writer = connect(uri)._open(uri)._client.append(f"{hdfs_folder}/run/metrics.jsonl")
        except FileExistsError:  # the ledger has it open
            time.sleep(0.01)
    books.train(lambda: books.told)
    assert "another writer has the file open" in str(books.told[0])
    del writer
    assert books.end() == [f"task {number}" for number in range(books.lines)]
