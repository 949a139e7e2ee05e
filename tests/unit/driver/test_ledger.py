"""The run's books: a store that fails costs no line and no training, and the end tells the truth."""

from __future__ import annotations

import io
import json
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from caffe_on_grid.driver import ledger, main, session, signals
from caffe_on_grid.driver.ledger import Ledger
from caffe_on_grid.errors import EnvironmentFault, Interrupted, TrainingFailed
from caffe_on_grid.metrics.progress import Plain
from caffe_on_grid.spec import run
from caffe_on_grid.spec.job import Cluster, JobSpec, Output
from caffe_on_grid.storage import registry
from caffe_on_grid.storage.fsspec_store import FsspecClient
from caffe_on_grid.storage.remote import RemoteStorage, StoreFault


class Troubled(FsspecClient):
    """Files that appear as they grow; `trouble` may fail an append when a share of it has been written."""

    def __init__(self) -> None:
        super().__init__("local", "")
        self.parts: list[float] = []
        """The share that each append writes before it fails; the last one counts on, none: all is well."""
        self.full = False
        self.hold: Callable[[], object] = lambda: None
        self.appends = 0

    def append(self, path: str, data: bytes) -> None:
        self.appends += 1
        self.hold()
        if not self.parts:
            return super().append(path, data)
        part = self.parts[0]
        self.parts = self.parts[1:]
        (super().append if Path(path).exists() else self._first)(path, data[: int(len(data) * part)])
        raise StoreFault("Broken", "so it is")

    def _first(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)

    def create(self, path: str, content) -> None:
        if self.full:
            raise StoreFault("DSQuotaExceededException", "no room")
        super().create(path, content)


@pytest.fixture
def store(monkeypatch) -> Iterator[Troubled]:
    made = Troubled()
    monkeypatch.setitem(registry.SCHEMES, "troubled", lambda: RemoteStorage(lambda uri: made, delays_s=()))
    for name, value in (("FLUSH_S", 0.01), ("AGAIN_S", 0.02), ("TOLD_S", 0.1)):
        monkeypatch.setattr(ledger, name, value)
    yield made
    made.parts, made.full = [], False


def record(folder: str, **changes) -> run.RunRecord:
    values = {"run_id": "r", "outcome": "running", "started": "2026-01-01T00:00:00Z", "run_folder": folder, "seed": 1}
    job = JobSpec(("train",), "solver.prototxt")
    return run.RunRecord(**{**values, **changes}, job=job, versions=run.Versions("0.1.0", "3.11.7"))


@pytest.fixture
def books(store, tmp_path) -> Ledger:
    kept = Ledger(f"troubled://{tmp_path}/run", None, tmp_path / "outcome.json")
    kept.open(record(kept.folder), overwrite=False)
    return kept


def gangs(folder: Path) -> list[str]:
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["task"] for line in lines]


def written(folder: Path, name: str = "run/run.json") -> tuple[str, int]:
    found = run.loads((folder / name).read_text())
    return found.outcome, found.exit_code


@pytest.mark.parametrize("part", [0.0, 0.4, 1.0], ids=["nothing of it", "a part of it", "all of it"])
@pytest.mark.parametrize("failures", [1, 3])
def test_an_append_that_fails_neither_loses_nor_doubles_a_line(store, books, tmp_path, part, failures):
    store.parts = [part] * failures
    for number in range(200):
        books.metrics.gang(f"task {number}", "r", 1.0)
        time.sleep(0.0005)
    books.end(record(books.folder, outcome="done", exit_code=0), 10.0)
    assert gangs(tmp_path) == [f"task {number}" for number in range(200)]
    assert written(tmp_path) == written(tmp_path, "outcome.json") == ("done", 0)
    assert store.parts == []
    assert books.trouble() is None


def until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_trouble_that_lasts_is_told_once(store, books, tmp_path):
    store.parts = [0.0] * 100
    books.metrics.gang("train", "r", 1.0)
    told = []
    until(lambda: told.append(books.trouble()) or told[-1])
    until(lambda: not store.parts)
    assert [str(one) for one in told if one] == [f"{books.metrics_jsonl}: the transfer broke off (so it is); try again"]
    assert books.trouble() is None
    books.end(record(books.folder, outcome="done", exit_code=0), 10.0)
    assert gangs(tmp_path) == ["train"]


def test_a_store_that_gives_no_answer_holds_up_nobody(store, books, tmp_path):
    answer = threading.Event()
    store.hold = answer.wait
    began = time.monotonic()
    books.metrics.gang("train", "r", 1.0)
    until(lambda: store.appends == 1)
    books.metrics.gang("test", "r", 2.0)
    books.write(record(books.folder, seed=7))
    with pytest.raises(EnvironmentFault, match="run: the store gives no answer"):
        books.end(record(books.folder, outcome="done", exit_code=0), 0.2)
    assert time.monotonic() - began < 5
    assert written(tmp_path) == ("running", None)
    assert "the store gives no answer" in str(books.trouble())
    answer.set()
    books.end(record(books.folder, outcome="done", exit_code=0), 10.0)
    assert gangs(tmp_path) == ["train", "test"]
    assert written(tmp_path) == ("done", 0)


def test_where_too_much_waits_lines_are_lost_and_the_end_says_so(store, books, tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "KEPT_BYTES", 100)
    store.parts = [0.0] * 50
    for number in range(5):
        books.metrics.gang(f"task {number}", "r", 1.0)
    with pytest.raises(EnvironmentFault, match="4 lines are lost"):
        books.end(record(books.folder, outcome="done", exit_code=0), 10.0)
    assert gangs(tmp_path) == ["task 0"]
    assert written(tmp_path) == ("running", None)


def test_a_disk_that_was_full_for_a_while(tmp_path, store):
    """A real file system, which takes a part of a line before it refuses the rest."""
    kept = Ledger(str(tmp_path / "run"), None, None)
    kept.open(record(kept.folder), overwrite=False)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        for number in range(300):
            kept.metrics.gang(f"task {number} {'x' * 5000}", "r", 1.0)
        until(lambda: kept._fault is not None)
        assert "grows past what the file system" in str(kept._fault)
        assert (tmp_path / "run" / "metrics.jsonl").stat().st_size == 1 << 20
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept.end(record(kept.folder, outcome="done", exit_code=0), 10.0)
    assert [task.split()[1] for task in gangs(tmp_path)] == [str(number) for number in range(300)]


# --- The end of a run, as the driver tells it ---


@pytest.fixture
def ending(store, tmp_path, monkeypatch):
    """Ends a run whose books are open by an error; (exit code, what is said)."""
    for name, value in (("SOON_S", 0.2), ("LATER_S", 0.4), ("LAST_S", 0.3)):
        monkeypatch.setattr(session, name, value)
    monkeypatch.setenv("CAFFE_ON_GRID_OUTCOME", str(tmp_path / "outcome.json"))
    output = Output(f"{tmp_path}/net.caffemodel", run_folder=f"troubled://{tmp_path}/run")
    job = JobSpec(("train",), "solver.prototxt", Cluster(executors=1), output=output)
    said = io.StringIO()
    display = Plain(said)
    made = session.Session(job, tmp_path, display, signals.Signals(), lambda plan: [])
    made.ledger.open(made._record, overwrite=False)

    def end(error):
        return main._end(made, error, display), said.getvalue().splitlines()

    return end


def test_a_run_whose_record_cannot_be_completed_has_failed_by_that(ending, store, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "LAST_S", 10.0)
    store.parts = [0.5] * 10_000
    code, said = ending(None)
    uri = f"troubled://{tmp_path}/run/metrics.jsonl"
    fault = f"the run's record is not whole: {uri}: the transfer broke off (so it is); try again"
    assert code == EnvironmentFault.exit_code
    assert [line for line in said if line.startswith("error:")] == [f"error: the run is done, but {fault}"]
    assert sum("is tried for" in line for line in said) == 1
    assert written(tmp_path) == written(tmp_path, "outcome.json") == ("failed", code)


def test_a_store_that_comes_back_while_it_is_waited_for_has_it_all(ending, store, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "LATER_S", 10.0)
    store.parts = [0.5] * 15
    code, said = ending(None)
    assert (code, [line for line in said if line.startswith("error:")]) == (0, [])
    assert written(tmp_path) == written(tmp_path, "outcome.json") == ("done", 0)


def test_where_nothing_can_be_written_the_gateway_has_the_truth(ending, store, tmp_path):
    store.full = True
    code, said = ending(None)
    assert code == EnvironmentFault.exit_code
    assert "the space quota is used up (no room)" in said[1]
    assert written(tmp_path) == ("running", None)
    assert written(tmp_path, "outcome.json") == ("failed", code)


@pytest.mark.parametrize("error", [TrainingFailed("the loss is nan"), Interrupted("ended by SIGINT")])
def test_a_run_that_has_failed_shows_its_cause_and_no_other_error(ending, store, tmp_path, error):
    store.full = True
    code, said = ending(error)
    assert code == error.exit_code
    assert [line for line in said if line.startswith("error:")] == said[:1] == [f"error: {error}"]
    assert said[-1].startswith("remark:    the run's record is not whole:")
    assert written(tmp_path, "outcome.json")[1] == code
    assert any("is tried for" in line for line in said) == isinstance(error, TrainingFailed)
