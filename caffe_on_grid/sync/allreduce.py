"""Synchronous data parallelism: every step, every rank updates with the mean gradient of all ranks.

The mean is sum / world, as Caffe's multi-solver training has it (parallel.cpp, NCCL::run and Callback: all-reduce, then
scale by 1 / solver_count). Sums are float32; all ranks get the same bits, since each sum is made once and sent to all.
"""

from __future__ import annotations

import time

import numpy as np

from caffe_on_grid.sync import rules
from caffe_on_grid.sync.api import Blobs, Exchange, Floats

_FLOAT_BYTES = 4


class AllReduce:
    """Packs gradients into a bucket, sums it over the ranks, and unpacks the mean; see `caffe_on_grid.sync.api`.

    One bucket is kept and used again; a blob that travels alone is summed where it lies, without a copy.
    """

    def __init__(self, comm: Exchange, bucket_bytes: int) -> None:
        """Exchange over `comm`; `bucket_bytes` is the most that is packed together (at least 4)."""
        if bucket_bytes < _FLOAT_BYTES:
            raise ValueError(f"a bucket holds at least one float32, not {bucket_bytes} bytes")
        self.seconds = 0.0
        self._comm = comm
        self._limit = bucket_bytes // _FLOAT_BYTES
        self._sizes: list[int] = []
        self._buckets: list[tuple[int, ...]] = []
        self._packed: Floats = np.empty(0, np.float32)

    def before_step(self, iteration: int, params: Blobs) -> None:
        """Nothing: parameters are equal because gradients are."""

    def on_ready(self, iteration: int, first: int, last: int, grads: Blobs) -> None:
        """Nothing yet: all buckets are exchanged in `on_gradients`."""

    def on_gradients(self, iteration: int, grads: Blobs) -> None:
        """Replace `grads` by their mean over the world, in place; returns at once in a world of one."""
        if self._comm.size == 1:
            return
        begin = time.perf_counter()
        self._plan(grads)
        for bucket in self._buckets:
            self._exchange(bucket, grads)
        self.seconds += time.perf_counter() - begin

    def close(self) -> None:
        """Let go of the bucket."""
        self._packed = np.empty(0, np.float32)
        self._sizes = []

    def _plan(self, grads: Blobs) -> None:
        sizes = [grad.size for grad in grads]
        if sizes == self._sizes:
            return
        if any(grad.dtype != np.float32 for grad in grads):
            raise TypeError("gradients must be float32")
        self._sizes = sizes
        self._buckets = rules.buckets(sizes, self._limit)
        largest = max((sum(sizes[i] for i in bucket) for bucket in self._buckets if len(bucket) > 1), default=0)
        self._packed = np.empty(largest, np.float32)

    def _exchange(self, bucket: tuple[int, ...], grads: Blobs) -> None:
        if len(bucket) == 1 and grads[bucket[0]].flags.c_contiguous:
            alone = grads[bucket[0]]
            self._comm.allreduce(alone)
            np.divide(alone, self._comm.size, out=alone)
        else:
            self._exchange_packed(bucket, grads)

    def _exchange_packed(self, bucket: tuple[int, ...], grads: Blobs) -> None:
        places = rules.places(self._sizes, bucket)
        packed = self._room(places[-1][2])
        for blob, start, stop in places:
            np.copyto(packed[start:stop].reshape(grads[blob].shape), grads[blob])
        self._comm.allreduce(packed)
        for blob, start, stop in places:
            np.divide(packed[start:stop].reshape(grads[blob].shape), self._comm.size, out=grads[blob])

    def _room(self, elements: int) -> Floats:
        if self._packed.size < elements:  # a blob that is not contiguous travels alone, packed
            self._packed = np.empty(elements, np.float32)
        return self._packed[:elements]
