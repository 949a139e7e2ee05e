"""A feeder process: reads, transforms, fills its slots in turn, says so; until its feed is closed or its parent dies.

It says things as JSON lines on a pipe: first {"records", "sample"}, then {"bad": [[index, why], …]} for each slot it
has filled, or at last {"error", "message"}. Each byte it reads from the other pipe is a slot given back.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from caffe_on_grid.data import lmdb_source, shard, transform
from caffe_on_grid.data.api import Array, FeedPlan, Record, Source
from caffe_on_grid.data.ring import Ring, layout, slots_per_feeder
from caffe_on_grid.errors import DataError, GridError
from caffe_on_grid.spec import program


class Batches:
    """Fills batches of one plan from one source."""

    def __init__(self, plan: FeedPlan, source: Source) -> None:
        self._plan = plan
        self._source = source
        self._stream = shard.stream(plan, len(source))
        self._random = transform.is_random(plan.transform, plan.phase)
        self._alike = not self._random and not plan.transform.crop
        self.bad: list[tuple[int, str]] = []
        """Index of, and what is wrong with, each undecodable record met since this was last emptied."""
        self._shape = self._first()
        self.sample = self._top_shape()

    def _first(self) -> transform.Shape:
        """Shape of the source's first usable record, which all samples must have where nothing is cropped."""
        for index in range(len(self._source)):
            try:
                return self._source.read(index).pixels.shape
            except DataError:
                if not self._plan.skip_bad:
                    raise
        raise DataError(f"{self._plan.source}: not one of its {len(self._source)} records can be used")

    def _top_shape(self) -> transform.Shape:
        try:
            return transform.top_shape(self._shape, self._plan.transform)
        except DataError as error:
            raise DataError(f"{self._plan.source}: {error}") from None

    def fill(self, number: int, data: Array, labels: Array) -> None:
        """Write the rank's `number`-th batch into `data` [batch, C, H, W] and `labels` [batch]."""
        plan = self._plan
        for place, position in enumerate(shard.positions(plan, number)):
            record = self._good(position)
            if record.pixels.shape != self._shape:
                self._check(record)
            labels[place] = record.label
            if self._alike:
                data[place] = record.pixels
            else:
                words = transform.draws(plan.seed, position) if self._random else ()
                transform.apply(record.pixels, plan.transform, plan.phase, words, data[place])
        if self._alike:  # once for all samples: several times faster for small ones
            transform.apply(data, plan.transform, plan.phase, (), data)

    def _good(self, position: int) -> Record:
        """The record at a stream position, or with `skip_bad` the next of the stream that can be decoded."""
        if not self._plan.skip_bad:
            return self._source.read(self._stream.index(position))
        for offset in range(2 * len(self._source)):
            index = self._stream.index(position + offset)
            try:
                return self._source.read(index)
            except DataError as error:
                self.bad.append((index, str(error)))
        raise DataError(f"{self._plan.source}: not one of its {len(self._source)} records can be used")

    def _check(self, record: Record) -> None:
        """Raises DataError for a record of another shape that Caffe would refuse in this net."""
        try:
            shape = transform.top_shape(record.pixels.shape, self._plan.transform)
        except DataError as error:
            raise DataError(f"record {record.key!r} of {self._plan.source}: {error}") from None
        if shape != self.sample:
            here, first = "×".join(map(str, record.pixels.shape)), "×".join(map(str, self._shape))
            raise DataError(
                f"record {record.key!r} of {self._plan.source} is {here} and the first {first}: images of different "
                "sizes need crop_size, or one size for all (convert --resize-height --resize-width)"
            )


@dataclass(frozen=True)
class Pipes:
    """A feeder's file descriptors: the shared memory, slots given back (read), what it says (write)."""

    memory: int
    given: int
    said: int

    def say(self, **message: Any) -> None:
        """Send one JSON line."""
        line = json.dumps(message).encode() + b"\n"
        while line:
            line = line[os.write(self.said, line) :]

    def wait(self) -> bool:
        """Wait until a slot is given back; False once the feed is closed."""
        return bool(os.read(self.given, 1))


def serve(plan: FeedPlan, number: int, pipes: Pipes) -> None:
    """Fill this feeder's batches (number, number + feeders, …) into its slots until the feed is closed."""
    source = lmdb_source.open(plan.source, plan.transform.force_color, plan.transform.force_gray)
    batches = Batches(plan, source)
    pipes.say(records=len(source), sample=batches.sample)
    slots = _slots(plan, number, pipes.memory, batches.sample)
    due = number if _has_batches(plan) else None
    taken = 0
    while due is not None and (taken < len(slots) or pipes.wait()):
        batches.fill(due, *slots[taken % len(slots)])
        pipes.say(bad=batches.bad)
        batches.bad.clear()
        due, taken = due + plan.feeders, taken + 1
    while pipes.wait():
        pass
    source.close()


def _has_batches(plan: FeedPlan) -> bool:
    return plan.phase == "TRAIN" or shard.batches_in_pass(plan) > 0


def _slots(plan: FeedPlan, number: int, memory: int, sample: transform.Shape) -> list[tuple[Array, Array]]:
    """Data and labels of each slot; labels that no top wants are written to a scrap of memory."""
    ring = Ring(memory, layout(plan, sample))
    tops = [ring.slot(number, slot) for slot in range(slots_per_feeder(plan))]
    unwanted = np.empty(plan.batch, np.float32)
    return [(top[plan.data_top], top[plan.label_top] if plan.label_top else unwanted) for top in tops]


def run(plan: FeedPlan, number: int, pipes: Pipes, parent: int) -> NoReturn:
    """The whole life of a forked feeder process; never returns to the caller's code."""
    code = 1
    try:
        _settle(pipes, parent)
        _serve_or_tell(plan, number, pipes)
        code = 0
    except BrokenPipeError:
        code = 0  # the feed was closed in between
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _serve_or_tell(plan: FeedPlan, number: int, pipes: Pipes) -> None:
    try:
        serve(plan, number, pipes)
    except GridError as error:
        pipes.say(error=type(error).__name__, message=str(error))


def _settle(pipes: Pipes, parent: int) -> None:
    """Die with the parent, leave Ctrl-C to it, and hold none of its files and sockets."""
    program.die_with(parent)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep = {0, 1, 2, pipes.memory, pipes.given, pipes.said}
    for fd in {int(entry.name) for entry in Path("/proc/self/fd").iterdir()} - keep:
        _close(fd)


def _close(fd: int) -> None:
    with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
        os.close(fd)
