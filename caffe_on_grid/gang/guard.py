"""A small parent for a program that must not outlive whoever started it.

    python -m caffe_on_grid.gang.guard [--watch-stdin] [--remove FOLDER] [--rank] -- COMMAND…

It runs COMMAND in a session of its own and ends with its exit code (128 + signal number if a signal ended it). It ends
COMMAND and everything that descends from it (it is their reaper: a new session or a dead parent hides nobody) when
COMMAND ends, when its own parent dies, at SIGTERM, and with --watch-stdin at a byte on its standard input or its end:
a pipe that the agent holds, so that even SIGKILL of the agent is noticed (then FOLDER is removed in its stead). Should
the guard itself be killed, COMMAND is too.

--rank: this is one rank, as Hydra starts it (PMI_RANK) or alone (CAFFE_ON_GRID_RANK). Its folder rank-N in the working
directory becomes COMMAND's working directory, rank-N.log its output, and rank-N.exit tells the agent how it ended.
There is no rank-N.exit where the guard was told to end the rank: then another has failed.

It runs in Spark's Python and in the runtime's.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Optional

GRACE_S = 1.5
"""Between SIGTERM and SIGKILL."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit code, or 143 if it was told to end it."""
    options = _options(argv)
    wakeup = _catch_signals()
    _tie_to_parent()
    log, folder = _rank_places() if options.rank else (None, None)
    child = _start(options.command, log, folder)
    status, orderly = _watch(child.pid, wakeup, options.watch_stdin)
    if folder is not None and status is not None:
        _tell_exit(folder, status)
    _end_descendants()
    if options.remove and not orderly:
        shutil.rmtree(options.remove, ignore_errors=True)
    child.returncode = _code(status)
    return child.returncode


def _options(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="guard")
    parser.add_argument("--watch-stdin", action="store_true")
    parser.add_argument("--remove")
    parser.add_argument("--rank", action="store_true")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(argv)


def _rank_places() -> tuple[BinaryIO, Path]:
    rank = os.environ.get("PMI_RANK") or os.environ["CAFFE_ON_GRID_RANK"]
    folder = Path.cwd() / f"rank-{int(rank)}"
    return folder.with_suffix(".log").open("ab"), folder


def _tie_to_parent() -> None:
    """Be the reaper of all descendants, and be told by SIGTERM when the parent (its thread) dies."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getppid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(_code(None))


def _catch_signals() -> int:
    """A file descriptor from which the numbers of arriving signals can be read."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (*_TOLD, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _start(command: Sequence[str], log: Optional[BinaryIO], folder: Optional[Path]) -> subprocess.Popen[bytes]:
    def prepare() -> None:  # in the child, before exec
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)

    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            close_fds=False,  # Hydra hands a rank its connection (PMI_FD) by inheritance
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
        )
    except OSError as error:
        os.write(log.fileno() if log else 2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
        if folder is not None:
            _tell_exit(folder, 127 << 8)
        raise SystemExit(127) from None


def _watch(pid: int, wakeup: int, watch_stdin: bool) -> tuple[Optional[int], bool]:
    """The child's wait status once it has ended, None when it is to be ended; and whether the agent saw to that.

    A byte on the standard input is the agent's word to end; its end without one is the agent's death.
    """
    sources = [wakeup, 0] if watch_stdin else [wakeup]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if 0 in ready:
            return None, bool(os.read(0, 1))
        arrived = os.read(wakeup, 4096)
        status = _reap().get(pid)
        if status is not None:
            return status, True
        if any(number in arrived for number in _TOLD):
            return None, False


def _reap() -> dict[int, int]:
    """Wait statuses of all children that have ended."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended[pid] = status
    return ended


def _end_descendants() -> None:
    """SIGTERM to all, SIGKILL to those left after GRACE_S, until none is left."""
    told: set[int] = set()
    deadline = time.monotonic() + GRACE_S
    while True:
        _reap()
        left = descendants(os.getpid())
        if not left:
            return
        kill = time.monotonic() > deadline
        for pid in left if kill else left - told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        told |= left
        time.sleep(0.02)


def descendants(ancestor: int) -> set[int]:
    """All living processes below `ancestor`."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            state, parent = _state_and_parent(entry)
            if state not in ("Z", "X", ""):
                parents[int(entry.name)] = parent
    found: set[int] = set()
    layer = {ancestor}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer} - found
        found |= layer
    return found


def _state_and_parent(process: Path) -> tuple[str, int]:
    try:
        after_name = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended meanwhile
        return "", 0
    return after_name[0], int(after_name[1])


def _tell_exit(folder: Path, status: int) -> None:
    partial = folder.with_suffix(".exit.part")
    partial.write_text(str(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)))
    partial.replace(folder.with_suffix(".exit"))


def _code(status: Optional[int]) -> int:
    if status is None:
        return 128 + signal.SIGTERM
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    sys.exit(main())
