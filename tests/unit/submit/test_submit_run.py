"""How a command is run and ended; small programs stand where spark-submit stands."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from caffe_on_grid.errors import ApplicationDied, ContactLost, GridError, Interrupted, Terminated, TrainingFailed
from caffe_on_grid.spec import run as records
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.submit import outcome, run
from caffe_on_grid.submit.argv import SparkCommand

RECORD = records.RunRecord(
    run_id="r1",
    outcome="failed",
    started="2026-01-01T00:00:00Z",
    run_folder="/runs/r1",
    seed=3,
    job=JobSpec(("train",), "solver.prototxt"),
    versions=records.Versions("0.1", "3.11"),
    application_id="local-1",
    exit_code=6,
    tasks=(
        records.TaskRecord("train", tests=(records.LastTest(0, 10, {"accuracy": (0.5,), "loss": (float("nan"),)}, 2),)),
    ),
)


def sh(text: str, *more: str) -> SparkCommand:
    return SparkCommand(("sh", "-c", text, *more), {"GREETING": "hello"})


def test_the_record_is_what_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "record").write_text(records.dumps(RECORD))
    command = sh('echo "$GREETING out"; echo err >&2; cp record "$CAFFE_ON_GRID_OUTCOME"; exit 1')
    record = run.run(SparkCommand(("sh", "-c", f"cd {tmp_path}; {command.argv[2]}"), command.env), tmp_path, os.environ)
    assert (record.run_id, record.exit_code) == ("r1", 6)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "hello out\nerr\n"


def test_on_a_terminal_the_driver_is_told_so(tmp_path: Path) -> None:
    near, far = pty.openpty()
    code = f"""import os
from pathlib import Path
from caffe_on_grid.errors import ApplicationDied
from caffe_on_grid.submit import argv, run
try:
    show = 'echo "$CAFFE_ON_GRID_TERMINAL" columns; test -t 1 && exit 3'
    run.run(argv.SparkCommand(("sh", "-c", show)), Path({str(tmp_path)!r}), os.environ)
except ApplicationDied as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], stderr=far, stdout=subprocess.PIPE, text=True, check=True)
    os.close(far)
    assert os.read(near, 1000) == b"80 columns\r\n"
    os.close(near)
    assert done.stdout == "Spark ended with 3 before the driver could say why: its messages are above\n"


def test_yarns_application_is_announced_while_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = replace(RECORD, exit_code=None, application_id="application_1_2")
    (tmp_path / "running").write_text(records.dumps(running))
    (tmp_path / "done").write_text(records.dumps(replace(running, exit_code=0)))
    text = 'cp running "$CAFFE_ON_GRID_OUTCOME"; sleep 1; echo end >&2; cp done "$CAFFE_ON_GRID_OUTCOME"'
    run.run(sh(f"cd {tmp_path}; {text}"), tmp_path, os.environ)
    assert capsys.readouterr().err == "Submitted application application_1_2\nend\n"


def test_json_outcome() -> None:
    assert outcome.as_json(RECORD) == (
        '{"run_id": "r1", "application_id": "local-1", "exit_code": 6, "outcome": "failed", "cause": null, '
        '"model": null, "run_folder": "/runs/r1", "tests": [{"task": "train", "net": 0, "iteration": 10, '
        '"outputs": {"accuracy": [0.5], "loss": ["nan"]}, "batches": 2}]}'
    )


def test_no_record_is_a_dead_application_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ApplicationDied, match=r"Spark ended with 3 .* the reason$"):
        run.run(sh("echo the reason >&2; exit 3"), tmp_path, os.environ)


def test_an_unfinished_record_is_a_dead_application(tmp_path: Path) -> None:
    text = records.dumps(RECORD).replace('"exit_code": 6', '"exit_code": null')
    (tmp_path / "outcome.json").write_text(text)
    with pytest.raises(ApplicationDied, match="Spark ended with 0"):
        run.run(sh("exit 0"), tmp_path, os.environ)


STEPPED = '{"kind": "started", "rank": 0}\n{"kind": "stepped", "iteration": 41}\n{"kind": "stepped", "itera'


@pytest.mark.parametrize(
    ("metrics", "error", "words"),
    [
        ("", ApplicationDied, "Spark was ended by SIGKILL before the driver could say why: the reason"),
        (STEPPED, TrainingFailed, "Spark was ended by SIGKILL in training, after 41 iterations: the reason"),
    ],
)
@pytest.mark.parametrize("ended", [{"outcome": "running", "exit_code": None}, {"exit_code": 1}], ids=["not", "unsaid"])
def test_a_run_whose_driver_died_is_closed(
    tmp_path: Path, metrics: str, error: type[GridError], words: str, ended: dict[str, object]
) -> None:
    """Also where the driver had seen Spark die and written that, but could not say it any more."""
    running = records.dumps(replace(RECORD, outcome="running", exit_code=None, run_folder=str(tmp_path)))
    told = records.dumps(replace(RECORD, run_folder=str(tmp_path), **ended))
    for name, text in (("outcome.json", told), ("run.json", running), ("metrics.jsonl", metrics)):
        (tmp_path / name).write_text(text)
    with pytest.raises(error) as raised:
        run.run(sh("echo the reason >&2; kill -9 $$"), tmp_path, os.environ)
    assert str(raised.value) == words
    closed = records.loads((tmp_path / "run.json").read_text())
    assert (closed.outcome, closed.exit_code, closed.ended is None) == ("failed", error.exit_code, False)
    assert closed.cause == records.Cause(error.__name__, words)


def test_a_driver_in_the_cluster_leaves_no_record_here(tmp_path: Path) -> None:
    with pytest.raises(ContactLost):
        run.run(sh("exit 0", "sh", "cluster"), tmp_path, os.environ)


def test_nothing_of_the_session_is_left(tmp_path: Path) -> None:
    """Not even what has a process group of its own, as Spark's Python workers have."""
    child = "import os, time; os.setpgid(0, 0); open('child', 'w').write(str(os.getpid())); time.sleep(60)"
    text = f'cd {tmp_path}; {sys.executable} -c "{child}" & while [ ! -s child ]; do sleep 0.05; done; exit 5'
    with pytest.raises(ApplicationDied):
        run.run(sh(text), tmp_path, os.environ)
    pid = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 20
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def signal_when(path: Path, number: int, times: int = 1) -> threading.Thread:
    """Signal this process once `path` has appeared; then again while it is asked to; then make `sent` beside it."""

    def wait() -> None:
        while not path.exists():
            time.sleep(0.02)
        for _ in range(times):
            os.kill(os.getpid(), number)
            time.sleep(0.5)  # a second one that comes before the first is taken would be one with it
        path.with_name("sent").touch()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


DRIVER = """import os, signal, sys, time
def end(number, frame):
    open("told", "w").write(str(number))
    os.replace("record", os.environ["CAFFE_ON_GRID_OUTCOME"])
    sys.exit(0)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
open("ready", "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_driver_alone_and_its_record_counts(tmp_path: Path, number: int) -> None:
    (tmp_path / "record").write_text(records.dumps(RECORD))
    (tmp_path / "caffe_on_grid_driver.py").write_text(DRIVER)
    text = f"cd {tmp_path}; trap 'touch wrong' INT TERM; {sys.executable} caffe_on_grid_driver.py"
    signal_when(tmp_path / "ready", number)
    record = run.run(sh(text), tmp_path, os.environ)
    assert (record.outcome, record.exit_code) == ("interrupted", 128 + number)
    assert (tmp_path / "told").read_text() == str(int(number))
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, Terminated)])
def test_before_there_is_a_driver_all_of_it_is_told(tmp_path: Path, number: int, error: type[Exception]) -> None:
    signal_when(tmp_path / "ready", number)
    with pytest.raises(error):
        run.run(sh(f"cd {tmp_path}; touch ready; exec sleep 60"), tmp_path, os.environ)


def test_a_signal_that_comes_while_it_is_being_started_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def late(*args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGTERM)
        return start(*args, **kwargs)

    monkeypatch.setattr("caffe_on_grid.submit.process.subprocess.Popen", late)
    with pytest.raises(Terminated):
        run.run(sh("exec sleep 60"), tmp_path, os.environ)


def test_one_that_does_not_end_is_killed_after_the_grace(tmp_path: Path) -> None:
    signal_when(tmp_path / "ready", signal.SIGINT)
    with pytest.raises(Interrupted):
        run.run(
            sh(f"cd {tmp_path}; trap '' TERM INT; touch ready; while :; do sleep 1; done"), tmp_path, os.environ, 0.5
        )


def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    signal_when(tmp_path / "ready", signal.SIGINT, times=2)
    with pytest.raises(Interrupted):
        run.run(
            sh(f"cd {tmp_path}; trap '' TERM INT; touch ready; while :; do sleep 1; done"), tmp_path, os.environ, 250
        )


def test_a_hangup_that_is_ignored_stays_so(tmp_path: Path) -> None:
    (tmp_path / "record").write_text(records.dumps(RECORD))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signal_when(tmp_path / "ready", signal.SIGHUP)
        waits = "while [ ! -e sent ]; do sleep 0.05; done"
        text = f'cd {tmp_path}; touch ready; {waits}; cp record "$CAFFE_ON_GRID_OUTCOME"'
        assert run.run(sh(text), tmp_path, os.environ).outcome == "failed"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ApplicationDied):
        run.run(sh("exit 1"), tmp_path, os.environ)
    assert signal.getsignal(signal.SIGINT) is before
