"""A job in YARN whose ResourceManager or store is away for a while: how the command ends, and what it leaves.

A small server stands where the ResourceManager stands, a shell where spark-submit stands.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from caffe_on_grid.errors import ContactLost, GridError, Interrupted, TrainingFailed
from caffe_on_grid.spec import run as records
from caffe_on_grid.spec.job import Cluster, JobSpec
from caffe_on_grid.storage import registry
from caffe_on_grid.storage.remote import RemoteStorage, StoreFault
from caffe_on_grid.submit import aftermath, run, watch, yarn_run
from caffe_on_grid.submit.argv import Application, SparkCommand
from caffe_on_grid.submit.capacity import Request

NAME = "application_1_2"
JOB = JobSpec(("train",), "solver.prototxt", Cluster(master="yarn", deploy_mode="cluster", executors=1))


class Manager:
    """One application; `away`: how many requests are not answered from now on."""

    def __init__(self) -> None:
        self.state, self.away, self.killed = "RUNNING", 0, 0


class Answers(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _say(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET(kills=True)

    def do_GET(self, kills: bool = False) -> None:
        manager: Manager = self.server.manager
        if manager.away:
            manager.away -= 1
            self.close_connection = True
            return
        if kills:
            manager.killed, manager.state = manager.killed + 1, "KILLED"
        facts = {"id": NAME, "state": manager.state, "finalStatus": "SUCCEEDED", "runningContainers": 2}
        if "/apps?" in self.path:
            self._say({"apps": {"app": [facts] if manager.state == "RUNNING" else []}})
        else:
            self._say({"state": manager.state} if self.path.partition("?")[0].endswith("/state") else {"app": facts})


class Store:
    """A store that is away, and gives no answer at all for what is followed."""

    appears_whole = False

    def entry(self, path: str) -> None:
        if path.startswith("/mute/") and path.endswith("metrics.jsonl"):
            time.sleep(20)
        raise StoreFault("Unreachable", "nobody is at home")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.manager = Manager()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    name, value = "yarn.resourcemanager.webapp.address", f"127.0.0.1:{server.server_port}"
    text = f"<configuration><property><name>{name}</name><value>{value}</value></property></configuration>"
    (tmp_path / "yarn-site.xml").write_text(text)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(watch, "LOOK_S", 0.05)
    monkeypatch.setattr(watch, "TROUBLE_S", 1.0)
    monkeypatch.setitem(registry.SCHEMES, "away", lambda: RemoteStorage(lambda uri: Store(), delays_s=()))
    yield server.manager
    server.shutdown()
    thread.join()
    server.server_close()


def start(tmp_path: Path, text: str, folder: str) -> records.RunRecord:
    application = Application(JOB, "r1", folder, Request(1, 1024, 1, 0, "default", None, None, 1024))
    return run.run(SparkCommand(("sh", "-c", text), {}, application), tmp_path, os.environ, 0.5)


def record(folder: str, **changes: object) -> records.RunRecord:
    made = records.RunRecord("r1", "running", "2026-01-01T00:00:00Z", folder, 1, JOB, records.Versions("0", "3"))
    return replace(made, **changes)  # type: ignore[arg-type]


def interrupt_when_running(folder: Path, manager: Manager, away: int) -> threading.Thread:
    """SIGINT once the submission runs; from then on the manager leaves `away` requests without an answer."""

    def wait() -> None:
        while not (folder / "running").exists():
            time.sleep(0.02)
        manager.away = away
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


RUNS = f"echo Submitted application {NAME}; touch running; sleep 60"


def test_an_outcome_that_cannot_be_read_is_not_known(tmp_path, manager):
    """It once ended as a fault of the environment, which says that the job did not run."""
    manager.state = "FINISHED"
    with pytest.raises(ContactLost, match=r"SUCCEEDED to YARN, and what it did cannot be read: .*nobody is at home"):
        start(tmp_path, f"echo Submitted application {NAME}; sleep 0.3", "away://h/run")


def test_a_manager_that_comes_back_ends_what_was_interrupted(tmp_path, manager, monkeypatch):
    monkeypatch.setattr(watch, "TROUBLE_S", 20.0)
    interrupt = interrupt_when_running(tmp_path, manager, away=4)
    with pytest.raises(Interrupted, match=f"ended by a signal; {NAME} was killed"):
        start(tmp_path, f"cd {tmp_path}; {RUNS}", "away://h/run")
    interrupt.join()
    assert (manager.away, manager.state) == (0, "KILLED")


def test_what_could_not_be_killed_is_named(tmp_path, manager):
    """It once said that no ResourceManager answers, and left the application behind without a word."""
    interrupt = interrupt_when_running(tmp_path, manager, away=10_000)
    with pytest.raises(ContactLost, match=rf"{NAME} may still run.*yarn application -kill {NAME}") as caught:
        start(tmp_path, f"cd {tmp_path}; {RUNS}", "away://h/run")
    interrupt.join()
    assert (caught.value.exit_code, manager.state) == (8, "RUNNING")


def test_a_store_without_an_answer_holds_up_no_interrupt(tmp_path, manager, monkeypatch):
    monkeypatch.setattr(yarn_run, "SHOWN_S", 0.2)
    interrupt, began = interrupt_when_running(tmp_path, manager, away=0), time.monotonic()
    with pytest.raises(Interrupted):
        start(
            tmp_path,
            f"cd {tmp_path}; echo Submitted application {NAME}; sleep 1; touch running; sleep 60",
            "away://h/mute",
        )
    interrupt.join()
    assert (manager.state, time.monotonic() - began < 10) == ("KILLED", True)


def test_a_submission_that_lost_sight_of_yarn_ends_no_application(tmp_path, manager):
    """spark-submit ends with 1 where it cannot ask for a while: the application was killed, which was well."""
    done = record(str(tmp_path / "run"), outcome="done", exit_code=0)
    (tmp_path / "run").mkdir()

    def end() -> None:
        (tmp_path / "run" / "run.json").write_text(records.dumps(done))
        manager.state = "FINISHED"

    ends = threading.Timer(1.5, end)
    ends.start()
    assert start(tmp_path, f"echo Submitted application {NAME}; sleep 0.5; exit 1", str(tmp_path / "run")) == done
    assert manager.killed == 0
    ends.join()


def test_what_a_signal_ends_is_killed_without_its_submission_too(tmp_path, manager):
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    ends = threading.Timer(1.2, interrupt)
    ends.start()
    with pytest.raises(Interrupted):
        start(tmp_path, f"echo Submitted application {NAME}; sleep 0.5; exit 1", "away://h/run")
    assert manager.state == "KILLED"
    ends.join()


def test_one_that_nobody_can_see_any_more_is_not_known(tmp_path, manager, monkeypatch):
    monkeypatch.setattr(watch, "LOST_S", 0.5)
    away = threading.Timer(0.8, setattr, (manager, "away", 100_000))
    away.start()
    with pytest.raises(ContactLost, match=f"{NAME} may still run"):
        start(tmp_path, f"echo Submitted application {NAME}; sleep 0.5; exit 1", "away://h/run")
    away.join()


def test_what_cannot_be_shown_ends_no_application(tmp_path, manager, capsys):
    """A line of metrics.jsonl that is none once killed the application it came from."""
    done = record(str(tmp_path / "run"), outcome="done", exit_code=0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("half a li\n")
    (tmp_path / "done").write_text(records.dumps(done))
    text = f"echo Submitted application {NAME}; sleep 1; cp {tmp_path}/done {tmp_path}/run/run.json"
    ends = threading.Timer(0.9, setattr, (manager, "state", "FINISHED"))
    ends.start()
    assert start(tmp_path, text, str(tmp_path / "run")) == done
    ends.join()
    said = capsys.readouterr().err
    assert said.count("note: the run cannot be shown any more: JSONDecodeError") == 1
    assert manager.killed == 0


@pytest.mark.parametrize("error", [TrainingFailed("rank 1: the loss is nan"), Interrupted("ended by SIGINT")])
def test_a_cause_is_told_though_it_cannot_be_recorded(manager, capsys, error: GridError):
    aftermath.close(record("away://h/run"), error)
    assert capsys.readouterr().err.startswith("note: it is not recorded how the run ended: away://h/run/run.json")


def test_how_far_a_run_was_stands_at_the_end_of_its_metrics(tmp_path, monkeypatch):
    lines = [{"kind": "stepped", "iteration": step} for step in range(1, 1000)] + [{"kind": "ranks"}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "step'
    (tmp_path / "metrics.jsonl").write_text(text)
    for size in (len(text) + 1, len(text), 1000):
        monkeypatch.setattr(aftermath, "LOOK_BYTES", size)
        assert aftermath.last_step(str(tmp_path)) == 999


def test_a_driver_that_died_is_told_though_its_metrics_cannot_be_read(manager):
    died = aftermath.died(record("away://h/run"), -9, "its last word")
    assert isinstance(died, TrainingFailed)
    assert "was ended by SIGKILL, and how far the training was cannot be read: its last word" in str(died)
