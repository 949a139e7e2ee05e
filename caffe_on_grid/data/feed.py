"""A rank's feed: batches that feeder processes make ahead of time in shared memory.

The solver's interpreter may stay locked for as long as a step takes, so nothing here needs a thread of its process: a
full slot is announced through a pipe, an emptied one given back through another. A pipe also ends when its other side
dies, so no wait outlives a feeder, and no feeder its feed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, Optional

from caffe_on_grid.data import feeder, shard
from caffe_on_grid.data.api import Array, FeedPlan
from caffe_on_grid.data.ring import Ring, layout, memory_file
from caffe_on_grid.errors import ConfigError, GridError, TrainingFailed, from_category

_POLL_MS = 1000
_CLOSE_MS = 2000


def start(plan: FeedPlan) -> FeederFeed:
    """Fork the feeders and wait until all have read their first record; raises what a feeder could not cope with.

    Call it in the main thread (feeders die with the thread that forks them), before Caffe and MPI are loaded.
    """
    feed = FeederFeed(plan)
    try:
        feed.begin()
    except BaseException:
        feed.close()
        raise
    return feed


class _Feeder:
    """The solver's side of one feeder process."""

    def __init__(self, plan: FeedPlan, number: int, memory: int) -> None:
        given, self._give = os.pipe()
        self._said, said = os.pipe()
        self._name = f"feeder {number} of {plan.source}"
        self._buffer = b""
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            feeder.run(plan, number, feeder.Pipes(memory, given, said), parent)
        os.close(given)
        os.close(said)
        self._poll = select.poll()
        self._poll.register(self._said, select.POLLIN)
        self._status: Optional[int] = None

    def message(self) -> dict[str, Any]:
        """The next thing the feeder says; raises the error it tells of, or TrainingFailed if it died."""
        while b"\n" not in self._buffer:
            self._buffer += self._read()
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise from_category(message["error"], message["message"])
        return message

    def _read(self) -> bytes:
        while not self._poll.poll(_POLL_MS):
            if self._ended(os.WNOHANG) and not self._poll.poll(0):
                raise self._death()
        data = os.read(self._said, 1 << 16)
        if not data:
            self._ended(0)
            raise self._death()
        return data

    def _ended(self, options: int) -> bool:
        """Whether the process has ended; with options 0 waits for it."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, options)
            self._status = status if pid else None
        return self._status is not None

    def _death(self) -> GridError:
        status = self._status or 0
        how = (
            f"was killed by signal {os.WTERMSIG(status)}"
            if os.WIFSIGNALED(status)
            else f"ended with code {status >> 8}"
        )
        hint = " (out of memory?)" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else ""
        return TrainingFailed(f"{self._name} (process {self.pid}) {how}{hint}; its last words are in this rank's log")

    def give(self) -> None:
        """Give one slot back."""
        with contextlib.suppress(BrokenPipeError):  # a dead feeder is told of when its next batch is due
            os.write(self._give, b"+")

    def close(self) -> None:
        """End the process: it leaves on its own when its pipe ends, or is killed."""
        os.close(self._give)
        deadline = time.monotonic() + _CLOSE_MS / 1000
        while self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if not os.read(self._said, 1 << 16):
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
        self._ended(0)
        os.close(self._said)


class FeederFeed:
    """Implements Feed with `plan.feeders` forked processes; batch n is made by feeder n mod feeders."""

    def __init__(self, plan: FeedPlan) -> None:
        self.seconds = 0.0
        self.skipped = 0
        self.records = 0
        self.shapes: Mapping[str, tuple[int, ...]] = {}
        self._plan = plan
        self._number = 0
        self._known_bad: set[int] = set()
        self._memory = memory_file()
        self._feeders: list[_Feeder] = []
        self._slots: list[list[dict[str, Array]]] = []

    def begin(self) -> None:
        """Fork the feeders and learn from them what there is."""
        numbers = range(self._plan.feeders)
        self._feeders.extend(_Feeder(self._plan, number, self._memory) for number in numbers)
        greetings = [one.message() for one in self._feeders]
        hello = greetings[0]
        channels, height, width = hello["sample"]
        form = layout(self._plan, (channels, height, width))
        ring = Ring(self._memory, form)
        self.records, self.shapes = hello["records"], form.shapes
        self._slots = [[ring.slot(feeder, slot) for slot in range(form.slots)] for feeder in numbers]

    def batch(self) -> Mapping[str, Array]:
        """The next batch: top → float32 array, valid until the next call.

        Raises DataError for a record that cannot be used, TrainingFailed if a feeder died, and ConfigError where this
        rank has no batch in a TEST pass.
        """
        plan, number = self._plan, self._number
        if plan.phase == "TEST" and not shard.batches_in_pass(plan):
            raise ConfigError(f"rank {plan.rank} has none of the {plan.passes} batches in a pass over {plan.source}")
        started = time.perf_counter()
        turn, who = divmod(number, plan.feeders)
        if number:
            self._feeders[(number - 1) % plan.feeders].give()
        self._note(self._feeders[who].message()["bad"])
        self._number += 1
        self.seconds += time.perf_counter() - started
        return self._slots[who][turn % len(self._slots[who])]

    def _note(self, bad: list[tuple[int, str]]) -> None:
        """Count replaced records; the log gets each one once."""
        self.skipped += len(bad)
        for index, why in bad:
            if index not in self._known_bad:
                self._known_bad.add(index)
                print(f"skipped: {why}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the feeders and free the memory (as soon as no batch is referred to)."""
        if self._memory < 0:
            return
        for one in self._feeders:
            one.close()
        os.close(self._memory)
        self._memory, self._feeders, self._slots = -1, [], []
