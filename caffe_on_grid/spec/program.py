"""What programs of ours share: words and errors refused as the command refuses its own, and an end with the parent."""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Optional, TextIO

from caffe_on_grid.errors import GridError, Interrupted, UsageError, of_the_machine
from caffe_on_grid.spec.codec import suggestion

_PR_SET_PDEATHSIG = 1
_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")


def refuse(error: GridError) -> int:
    """Say what is wrong; the exit code, which is the error's also where no word can be said."""
    try:
        print(f"error: {error}", file=sys.stderr)
    except OSError:
        _drop(sys.stderr)
    return error.exit_code


def end(work: Callable[[], None]) -> int:
    """Do a program's work; its exit code, what went wrong said in one line."""
    try:
        work()
        sys.stdout.flush()
    except GridError as error:
        return refuse(error)
    except KeyboardInterrupt:
        return refuse(Interrupted("interrupted"))
    except OSError as error:
        fault = None if error.errno == errno.EPIPE else of_the_machine(error)
        _drop(sys.stdout)
        return refuse(fault) if fault else 1  # 1: whoever reads has seen enough
    return 0


def _drop(stream: TextIO) -> None:
    """What the stream still holds goes nowhere: writing it at the end of Python would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def die_with(parent: int) -> None:
    """Ask Linux for SIGKILL when the parent dies: of a killed parent nothing else is left to tell its children."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before it was asked
        os.kill(os.getpid(), signal.SIGKILL)


def end_in_order() -> None:
    """From now on SIGTERM is SystemExit, so that what is half written is taken away again."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without abbreviations that names the nearest known word."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "allow_abbrev": False})
        self._given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse does; the words are remembered for `error`."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """One line that begins with `error:`, and the exit code of wrong words."""
        known = set(self._known())
        unknown = next((w for w in self._given if re.match(r"--?[a-zA-Z]", w) and w.split("=")[0] not in known), None)
        choice = _CHOICE.search(message)
        if unknown:
            message = f"no option {unknown}{suggestion(unknown, known)}"
        elif choice:
            message += suggestion(choice[1], re.findall(r"[\w.-]+", choice[2]))
        sys.exit(refuse(UsageError(message)))

    def _known(self) -> Iterator[str]:
        """Options, those of commands too."""
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for one in action.choices.values():
                    yield from one._known()
