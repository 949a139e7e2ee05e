"""The shared memory between feeders and the solver: a file without a name, so that no death leaves anything behind."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from caffe_on_grid.data.api import Array, FeedPlan


@dataclass(frozen=True)
class Layout:
    """Where each top of each slot lies. Every feeder has `slots` of its own; a slot holds one float32 batch."""

    shapes: Mapping[str, tuple[int, ...]]
    feeders: int
    slots: int

    @property
    def slot_bytes(self) -> int:
        """Size of one slot."""
        return 4 * sum(_count(shape) for shape in self.shapes.values())

    @property
    def total_bytes(self) -> int:
        """Size of all slots of all feeders."""
        return self.feeders * self.slots * self.slot_bytes


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def slots_per_feeder(plan: FeedPlan) -> int:
    """Each feeder's share of the plan's slots: at least one to fill while another is used."""
    return max(2, -(-plan.slots // plan.feeders))


def layout(plan: FeedPlan, sample: tuple[int, int, int]) -> Layout:
    """The layout for samples of [C, H, W]: data [batch, C, H, W] and, where there is such a top, label [batch]."""
    shapes: dict[str, tuple[int, ...]] = {plan.data_top: (plan.batch, *sample)}
    if plan.label_top is not None:
        shapes[plan.label_top] = (plan.batch,)
    return Layout(shapes, plan.feeders, slots_per_feeder(plan))


def memory_file() -> int:
    """Descriptor of an empty file that lives in memory and has no name."""
    try:
        return os.memfd_create("caffe_on_grid.feed")
    except OSError:  # Linux before 3.17
        with tempfile.TemporaryFile(dir="/dev/shm") as file:  # it never has a name there
            return os.dup(file.fileno())


class Ring:
    """The slots, mapped into this process; `fd` is an anonymous file that both sides hold."""

    def __init__(self, fd: int, layout: Layout) -> None:
        os.ftruncate(fd, layout.total_bytes)
        self._memory = mmap.mmap(fd, layout.total_bytes)
        self._layout = layout

    def slot(self, feeder: int, slot: int) -> dict[str, Array]:
        """Views of one slot's tops."""
        offset = (feeder * self._layout.slots + slot) * self._layout.slot_bytes
        views: dict[str, Array] = {}
        for top, shape in self._layout.shapes.items():
            views[top] = np.frombuffer(self._memory, np.float32, _count(shape), offset).reshape(shape)
            offset += 4 * _count(shape)
        return views
