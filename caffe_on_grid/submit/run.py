"""Running a SparkCommand: its own session, signals passed on, a bounded end, and the outcome that the driver leaves."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, Optional

from caffe_on_grid.errors import ContactLost, GridError, Interrupted, Terminated
from caffe_on_grid.spec import run as records
from caffe_on_grid.submit import aftermath, argv

GRACE_S = 30.0
"""How long a job may take to end after the first signal; then it is killed."""

TAIL = 12
"""Lines of Spark's output that are shown where it left nothing else."""

SIGNALS: dict[int, type[GridError]] = {signal.SIGINT: Interrupted, signal.SIGTERM: Terminated}


def run(
    command: argv.SparkCommand, folder: Path, environ: Mapping[str, str], grace_s: float = GRACE_S
) -> records.RunRecord:
    """Run `command` to its end; what its driver wrote of itself.

    Where the driver could not write its end, run.json is closed in its stead, and this raises: ApplicationDied (after
    the first step TrainingFailed) with Spark's last lines, Interrupted or Terminated after a signal, ContactLost for a
    driver in the cluster whose record is not on this machine.
    """
    outcome = folder / argv.OUTCOME
    env = {**environ, **command.env, "CAFFE_ON_GRID_OUTCOME": str(outcome)}
    with _started(command, env) as (process, tail), _signals(process) as caught:
        code = _wait(process, caught, grace_s, outcome)
    return _record(outcome, code, caught, list(tail), "cluster" in command.argv)


@contextmanager
def _started(
    command: argv.SparkCommand, env: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], collections.deque[str]]]:
    """The process, in a session of its own, and the last lines it says.

    On a terminal it writes there itself, so that the driver's live display works; elsewhere its lines are passed on.
    All of it goes to stderr: stdout is for the result alone.
    """
    tail: collections.deque[str] = collections.deque(maxlen=TAIL)
    shown = sys.stderr.isatty()
    target = sys.stderr.fileno() if shown else subprocess.PIPE
    process = subprocess.Popen(
        command.argv,
        env={**env, **_terminal(shown)},
        stdin=subprocess.DEVNULL,
        stdout=target,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    reader = threading.Thread(target=_pass_on, args=(process.stdout, tail), daemon=True)
    if process.stdout is not None:
        reader.start()
    try:
        yield process, tail
    finally:
        _kill(process)
        process.wait()
        if process.stdout is not None:
            reader.join(timeout=5)


def _terminal(shown: bool) -> dict[str, str]:
    """What tells the driver, whose stderr is a pipe of Spark's, that a terminal of this width is at its end."""
    return {"CAFFE_ON_GRID_TERMINAL": str(os.get_terminal_size(sys.stderr.fileno()).columns or 80)} if shown else {}


def _pass_on(stream: IO[bytes], tail: collections.deque[str]) -> None:
    with stream:
        for line in stream:
            text = line.decode("utf-8", "replace")
            sys.stderr.write(text)
            sys.stderr.flush()
            if text.strip():
                tail.append(text.rstrip())


@contextmanager
def _signals(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Pass SIGINT and SIGTERM on to the job while in here; yields the list of those that came."""
    caught: list[int] = []

    def handle(number: int, _: Optional[FrameType]) -> None:
        caught.append(number)
        _forward(process, number, again=len(caught) > 1)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _forward(process: subprocess.Popen[bytes], number: int, again: bool) -> None:
    """Tell the driver, which ends the gang and writes its record; where there is none yet, all of it; twice: kill."""
    driver = driver_pid(process.pid)
    if again:
        _kill(process)
    elif driver is not None:
        _send(driver, number)
    else:
        _send(-process.pid, signal.SIGTERM)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has just ended: what was wanted


def _kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the whole session: Spark's Python workers have process groups of their own in it."""
    for pid, _ in _session(process.pid):
        _send(pid, signal.SIGKILL)


def driver_pid(leader: int) -> Optional[int]:
    """The Python driver in the session that `leader` leads, or None."""
    drivers = (pid for pid, words in _session(leader) if len(words) > 1 and words[1].endswith(argv.DRIVER.encode()))
    return next(drivers, None)


def _session(leader: int) -> Iterator[tuple[int, list[bytes]]]:
    """Processes of a session and their words (from Linux' /proc)."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
        if session == leader:
            yield int(entry.name), words


def _wait(process: subprocess.Popen[bytes], caught: list[int], grace_s: float, outcome: Path) -> int:
    deadline, application = None, None
    while True:
        try:
            return process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            application = application or _announced(outcome)
            if caught and deadline is None:
                deadline = time.monotonic() + grace_s
            if deadline is not None and time.monotonic() > deadline:
                _kill(process)


def _as_told(record: records.RunRecord, caught: list[int]) -> records.RunRecord:
    """The record; after a signal a failure is its consequence, whatever broke first on the way down."""
    if not caught or record.outcome == "done":
        return record
    return replace(record, outcome="interrupted", exit_code=SIGNALS[caught[0]].exit_code)


def _announced(outcome: Path) -> Optional[str]:
    """The application's id, once the driver has written it; YARN's is said as schedulers look for it."""
    try:
        found = json.loads(outcome.read_text(encoding="utf-8"))["application_id"]
    except (OSError, ValueError):
        return None  # not yet, or just being written
    if found and found.startswith("application_"):
        print(f"Submitted application {found}", file=sys.stderr, flush=True)
    return str(found) if found else None


def _record(outcome: Path, code: int, caught: list[int], tail: list[str], in_cluster: bool) -> records.RunRecord:
    record = records.loads(outcome.read_text(encoding="utf-8"), str(outcome)) if outcome.is_file() else None
    if record is not None and record.exit_code is not None:
        return _as_told(record, caught)
    error = _unsaid(record, code, caught, tail, in_cluster)
    if record is not None:
        aftermath.close(record, error)
    raise error


def _unsaid(
    record: Optional[records.RunRecord], code: int, caught: list[int], tail: list[str], in_cluster: bool
) -> GridError:
    """What the driver has left unsaid: the end of the run."""
    if caught:
        return SIGNALS[caught[0]](
            "ended by a signal before the job had begun" if record is None else "ended by a signal"
        )
    if in_cluster and code == 0:
        return ContactLost("the application has ended well, and its run.json is beside the model, not on this machine")
    return aftermath.died(record, code, " | ".join(tail[-3:]) or "its messages are above")
