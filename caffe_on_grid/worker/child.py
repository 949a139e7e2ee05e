"""Work that may abort (Caffe's failed CHECK is SIGABRT) in a forked child, so that it ends as an error in words."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import IO, Any

from caffe_on_grid.errors import ConfigError, EnvironmentFault, GridError, from_category
from caffe_on_grid.spec import program

_CREATING = re.compile(r"\] Creating [Ll]ayer (\S+)$|\] (Network initialization done)", re.MULTILINE)
_FATAL = re.compile(r"^F\d{4,8} \S+\s+\d+ ([^\]]+\] .*)$", re.MULTILINE)


def run(work: Callable[[], Any], what: str) -> Any:
    """What `work` returns (JSON values), from a child process; call before Caffe is imported.

    Raises the child's GridError as it is, ConfigError with Caffe's fatal line (naming `what`) where Caffe aborted, and
    EnvironmentFault where the child died otherwise. An unexpected exception's traceback goes to stderr.
    """
    sys.stdout.flush()
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as said:
        parent = os.getpid()
        child = os.fork()
        if not child:
            program.die_with(parent)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent says what is to be said
            _live(work, answer, said)
        status = os.waitpid(child, 0)[1]
        lines = _read(said)
        if os.WIFSIGNALED(status):
            raise _death(os.WTERMSIG(status), lines, what)
        found = json.loads(_read(answer) or "{}")
    if "error" in found:
        raise from_category(found["error"], found["message"])
    if "value" not in found:
        sys.stderr.write(lines[lines.find("Traceback (most recent call last)") :])
        raise EnvironmentFault(f"{what}: the program that reads it failed, see above")
    return found["value"]


def _live(work: Callable[[], Any], answer: IO[bytes], said: IO[bytes]) -> None:
    """The child: never returns."""
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    os.environ.update(GLOG_minloglevel="0")  # Caffe's log tells which layer it was at
    try:
        found = {"value": work()}
    except GridError as error:
        found = {"error": type(error).__name__, "message": str(error)}
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    answer.write(json.dumps(found).encode())
    answer.flush()
    os._exit(0)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _death(number: int, lines: str, what: str) -> GridError:
    fatal = _FATAL.search(lines)
    if fatal:
        return ConfigError(f"{what}: Caffe refuses {_at(lines[: fatal.start()])}: {fatal[1].strip()}")
    return EnvironmentFault(
        f"{what}: ended by {signal.Signals(number).name}; {lines.strip()[-300:] or 'it said nothing'}"
    )


def _at(log: str) -> str:
    """The layer that was being made, if one was."""
    made = _CREATING.findall(log)
    return f"layer {made[-1][0]!r}" if made and made[-1][0] else "it"
