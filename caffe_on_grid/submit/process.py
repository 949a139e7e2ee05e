"""The process that a SparkCommand starts: its own session, its words, the signals it is sent, its end."""

from __future__ import annotations

import collections
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Callable, Optional

from caffe_on_grid.errors import SIGNALS
from caffe_on_grid.submit import argv

TAIL = 12
"""Lines of Spark's output that are shown where it left nothing else."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

Hear = Callable[[str], bool]
"""Takes a line that the process says; False: it is not to be passed on."""


def say(text: str) -> None:
    """A line on stderr; a job does not die of a terminal that has gone or of a log on a full disk."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _all(_: str) -> bool:
    return True


@contextmanager
def started(
    command: argv.SparkCommand, env: dict[str, str], hear: Hear = _all, direct: bool = True, passed_on: bool = True
) -> Iterator[tuple[subprocess.Popen[bytes], collections.deque[str], list[int]]]:
    """The process, in a session of its own, the last lines it says, and those of SIGNALS that came.

    On a terminal it writes there itself (where `direct`), so that the driver's live display works; elsewhere its lines
    are passed on, if `hear` lets them. All of it goes to stderr: stdout is for the result alone. Signals are taken
    before it starts, so that none finds a process that nobody ends, and `passed_on` to the job.
    """
    running: list[subprocess.Popen[bytes]] = []
    with _signals(running, passed_on) as caught, _process(command, env, hear, direct) as (process, tail):
        running.append(process)
        if caught and passed_on:
            forward(process, caught[-1], again=len(caught) > 1)
        yield process, tail, caught


@contextmanager
def _process(
    command: argv.SparkCommand, env: dict[str, str], hear: Hear, direct: bool
) -> Iterator[tuple[subprocess.Popen[bytes], collections.deque[str]]]:
    tail: collections.deque[str] = collections.deque(maxlen=TAIL)
    shown = direct and sys.stderr.isatty()
    target = sys.stderr.fileno() if shown else subprocess.PIPE
    process = subprocess.Popen(
        command.argv,
        env={**env, **_terminal(shown)},
        stdin=subprocess.DEVNULL,
        stdout=target,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - no other thread has been started yet
    )
    reader = threading.Thread(target=_pass_on, args=(process.stdout, tail, hear), daemon=True)
    if process.stdout is not None:
        reader.start()
    try:
        yield process, tail
    finally:
        kill(process)
        process.wait()
        if process.stdout is not None:
            reader.join(timeout=5)


def _end_with_parent() -> None:
    """Should this command be killed, Spark is told to end (by the kernel, through all that exec makes of it)."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _terminal(shown: bool) -> dict[str, str]:
    """What tells the driver, whose stderr is a pipe of Spark's, that a terminal of this width is at its end."""
    return {"CAFFE_ON_GRID_TERMINAL": str(os.get_terminal_size(sys.stderr.fileno()).columns or 80)} if shown else {}


def _pass_on(stream: IO[bytes], tail: collections.deque[str], hear: Hear) -> None:
    with stream:
        for line in stream:
            text = line.decode("utf-8", "replace")
            if hear(text):
                say(text.removesuffix("\n"))
            if text.strip():
                tail.append(text.rstrip())


@contextmanager
def _signals(running: Sequence[subprocess.Popen[bytes]], passed_on: bool) -> Iterator[list[int]]:
    """Take SIGNALS while in here, pass them on to the job once it is `running`; yields the list of those that came.

    SIGHUP is taken only where all is passed on, since an application on a cluster may outlive the terminal; where it
    is ignored it stays so: `nohup` means it.
    """
    caught: list[int] = []

    def handle(number: int, _: Optional[FrameType]) -> None:
        caught.append(number)
        if running and (passed_on or len(caught) > 1):
            forward(running[0], number, again=len(caught) > 1)

    hangup = passed_on and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    taken = [number for number in SIGNALS if number != signal.SIGHUP or hangup]
    before = {number: signal.signal(number, handle) for number in taken}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def forward(process: subprocess.Popen[bytes], number: int, again: bool) -> None:
    """Tell the driver, which ends the gang and writes its record; where there is none yet, all of it; twice: kill."""
    driver = driver_pid(process.pid)
    if again:
        kill(process)
    elif driver is not None:
        _send(driver, number)
    else:
        _send(-process.pid, signal.SIGTERM)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has just ended: what was wanted


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the whole session: Spark's Python workers have process groups of their own in it."""
    for pid, _ in _session(process.pid):
        _send(pid, signal.SIGKILL)


def kill_driver(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the Python driver, if it is here; its JVM then ends in order."""
    driver = driver_pid(process.pid)
    if driver is not None:
        _send(driver, signal.SIGKILL)


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
