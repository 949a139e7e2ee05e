"""Which records a rank's n-th batch is made of: pure index arithmetic over the record stream.

The stream is the concatenation of one order per epoch: a seeded permutation, or with `shuffle` off the source's own
order. Position p of the stream is record `order(p // records)[p % records]`. Global TRAIN batch k is the stream's slice
[k·world·batch, (k + 1)·world·batch) and rank r takes the r-th piece of it, so N ranks with batch b see what one rank
with batch N·b sees, and a batch may straddle two epochs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from caffe_on_grid.data.api import FeedPlan, Indices


def epoch_order(records: int, seed: int, epoch: int) -> Indices:
    """The permutation of 0 … records − 1 that is epoch `epoch`.

    Made by numpy's legacy `RandomState` (frozen, so the same in every numpy version): MT19937 keyed by the 32-bit words
    (seed mod 2³², seed div 2³² mod 2³², epoch), then its `permutation`.
    """
    words = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, epoch]
    return np.random.RandomState(words).permutation(records).astype(np.int64, copy=False)


class Stream:
    """Records by position in the stream; holds the order of one epoch."""

    def __init__(self, records: int, seed: int, shuffle: bool) -> None:
        self.records = records
        self._seed = seed
        self._shuffle = shuffle
        self._epoch = -1
        self._order: Indices = np.empty(0, np.int64)

    def index(self, position: int) -> int:
        """The record at `position`."""
        epoch, place = divmod(position, self.records)
        if not self._shuffle:
            return place
        if epoch != self._epoch:
            self._order, self._epoch = epoch_order(self.records, self._seed, epoch), epoch
        return int(self._order[place])

    def indices(self, positions: range) -> Iterator[int]:
        """The records at `positions`, in order."""
        return map(self.index, positions)


def stream(plan: FeedPlan, records: int) -> Stream:
    """The stream that a plan's batches are slices of; a TEST stream is never shuffled."""
    return Stream(records, plan.seed, plan.shuffle and plan.phase == "TRAIN")


def train_positions(plan: FeedPlan, number: int) -> range:
    """Stream positions of the rank's `number`-th TRAIN batch after `plan.first`."""
    start = ((plan.first + number) * plan.world + plan.rank) * plan.batch
    return range(start, start + plan.batch)


def batches_in_pass(plan: FeedPlan) -> int:
    """How many batches of each TEST pass are this rank's: those whose place is ≡ rank modulo world."""
    return len(range(plan.rank, plan.passes, plan.world))


def test_positions(plan: FeedPlan, number: int) -> range:
    """Stream positions of the rank's `number`-th TEST batch, counted over its share of pass `plan.first` and on."""
    turn, place = divmod(number, batches_in_pass(plan))
    start = ((plan.first + turn) * plan.passes + plan.rank + place * plan.world) * plan.batch
    return range(start, start + plan.batch)


def positions(plan: FeedPlan, number: int) -> range:
    """Stream positions of the rank's `number`-th batch in the plan's phase."""
    return train_positions(plan, number) if plan.phase == "TRAIN" else test_positions(plan, number)
