"""What to say of a rank that died without a word: from how it ended, how far it was, and its log."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

TAIL = 20
"""Lines of native output that go with a failure."""

_FATAL = re.compile(r"^F\d{4,8} \S+\s+\d+ (?P<where>[^\]]+)\] (?P<what>.*)$")
_LOADER = (
    "error while loading shared libraries",
    "No module named",
    "ImportError",
    "GLIBC",
    "Could not find platform",
    "Fatal Python error: init",
    "Fatal Python error: Py_Initialize",
    "cannot be started",
    "MPI_Init",
    "MPID_Init",
)
_DEVICE = re.compile(r"cuda|cublas|cudnn|gpu|nccl|syncedmem", re.IGNORECASE)


@dataclass(frozen=True)
class Death:
    """How a rank ended."""

    code: Optional[int]
    """Exit code; negative: the signal's number; None: not known (it was ended with its gang, or is still ending)."""
    iteration: int
    stepped: bool
    """It had done a step."""
    started: bool
    """It had reported that its net is built."""


def explain(death: Death, lines: tuple[str, ...]) -> tuple[str, str]:
    """(category, message) of a death, given the last lines of the rank's output."""
    when = f"at iteration {death.iteration}" if death.stepped else "before its first step"
    fatal = next((match for match in map(_FATAL.match, lines) if match), None)
    if fatal is not None:
        return _category(death, fatal.group(0)), f"Caffe stopped {when}: {fatal['where']}] {fatal['what']}"
    if death.code is None:
        return _later(death), f"ended {when} without a word, or was ended with another part of the gang"
    broken = next((line for line in lines if any(sign in line for sign in _LOADER)), None)
    if broken is not None and not death.started:
        return "EnvironmentFault", f"could not start: {broken.strip()}; check the runtime"
    return _later(death), f"{_how(death.code)} {when}{_last_words(lines)}"


def native_lines(log: Path) -> tuple[str, ...]:
    """The last lines of a rank's output, those of Caffe's fatal messages first."""
    if not log.exists():
        return ()
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - (1 << 16)))
        lines = [line[:500] for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    fatal = [line for line in lines if _FATAL.match(line)]
    return tuple(fatal[:3] + [line for line in lines if line not in fatal][-TAIL:])


def _category(death: Death, fatal: str) -> str:
    if death.stepped:
        return "TrainingFailed"
    return "EnvironmentFault" if _DEVICE.search(fatal) else "ConfigError"


def _later(death: Death) -> str:
    return "TrainingFailed" if death.stepped else "EnvironmentFault"


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in signal.Signals.__members__.values() else f"signal {-code}"
    if -code == signal.SIGKILL:
        return f"was killed by {name} (most likely out of memory: give the executors more, or lower batch_size)"
    return f"was ended by {name}"


def _last_words(lines: tuple[str, ...]) -> str:
    return f": {lines[-1].strip()}" if lines else ""
