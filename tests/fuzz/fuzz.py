"""Feeds changed files to the readers: `python fuzz.py COUNT SECONDS [TARGET…]`; one JSON object on stdout.

Each reader gets COUNT inputs or, where SECONDS is not 0, as many as it can take in that time. The process has little
memory and no patience: what is neither read nor refused by a documented error ends it, with the input on stderr.
"""

from __future__ import annotations

import base64
import json
import random
import resource
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

import mutations
import targets

from caffe_on_grid.errors import GridError

MEMORY_BYTES = 3 << 30
"""Of address space: the libraries take a half of it."""
PATIENCE_S = 20


def _hang(_number: int, _frame: Any) -> NoReturn:
    raise TimeoutError(f"not done after {PATIENCE_S} s")


def fuzz(name: str, count: int, seconds: float) -> dict[str, int]:
    """Numbers of inputs that were read and refused."""
    target, rng = targets.TARGETS[name], random.Random(name)
    found = {"read": 0, "refused": 0}
    for seed in target.seeds:
        found["read"] += _try(name, target, seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end if seconds else sum(found.values()) < count:
        data = mutations.mutated(rng, target.seeds, target.changes)
        found["read" if _try(name, target, data) else "refused"] += 1
    return found


def _try(name: str, target: targets.Target, data: bytes) -> bool:
    """Whether the input is read; exits at what is no documented refusal."""
    signal.alarm(PATIENCE_S)
    try:
        target.read(data)
    except GridError as error:
        if not str(error) or "\n" in str(error):
            _complain(name, data)
        return False
    except BaseException:
        _complain(name, data)
    finally:
        signal.alarm(0)
    return True


def _complain(name: str, data: bytes) -> NoReturn:
    traceback.print_exc()
    print(f"target {name}, input (base64): {base64.b64encode(data).decode()}", file=sys.stderr)
    sys.exit(1)


def main() -> None:
    """Fuzz the named targets, or all."""
    count, seconds = int(sys.argv[1]), float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, _hang)
    print(json.dumps({name: fuzz(name, count, seconds) for name in sys.argv[3:] or targets.TARGETS}))


if __name__ == "__main__":
    main()
