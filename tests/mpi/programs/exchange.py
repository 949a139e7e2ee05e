"""Every case of the table, asserted from inside the ranks; rank 0 prints the cases that held."""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from caffe_on_grid.comm.mpi import World
from caffe_on_grid.spec.job import SyncSpec
from caffe_on_grid.sync import registry
from caffe_on_grid.sync.allreduce import AllReduce

LENET = [(20, 1, 5, 5), (20,), (50, 20, 5, 5), (50,), (500, 800), (500,), (10, 500), (10,)]
SHAPES = {
    "lenet": LENET,
    "odd": [(3,), (1,), (7, 11), (5,), (13,)],
    "scalar": [(), (2, 2), ()],
    "one": [(4, 4)],
    "none": [],
}
BUCKETS = (4, 12, 64, 4096, 16 << 20)


def gradients(shapes, rank):
    draws = np.random.RandomState(100 + rank)
    return [np.asarray(draws.standard_normal(shape), dtype=np.float32).reshape(shape) for shape in shapes]


def reference(shapes, world):
    """The mean in float64."""
    everyone = [gradients(shapes, rank) for rank in range(world)]
    return [np.mean([grads[i].astype(np.float64) for grads in everyone], axis=0) for i in range(len(shapes))]


def digest(blobs):
    return hashlib.sha256(b"".join(blob.tobytes() for blob in blobs)).hexdigest()


def check_mean(world, shapes, bucket_bytes):
    grads = gradients(shapes, world.rank)
    before = world.bytes
    sync = AllReduce(world, bucket_bytes)
    sync.before_step(0, grads)
    sync.on_ready(0, 0, max(len(grads) - 1, 0), grads)
    sync.on_gradients(0, grads)
    for mine, want in zip(grads, reference(shapes, world.size)):
        np.testing.assert_allclose(mine, want, rtol=2e-6, atol=2e-7)
        assert mine.dtype == np.float32
    assert len(set(world.allgather(digest(grads)))) == 1
    payload = 0 if world.size == 1 else sum(grad.nbytes for grad in grads)
    assert world.bytes - before == payload
    assert (sync.seconds > 0) == (world.size > 1)
    sync.close()


def check_repeats(world):
    """Buckets are used again: the second step's mean owes nothing to the first's."""
    sync = registry.create("allreduce", world, SyncSpec(bucket_mib=1))
    shapes = SHAPES["odd"]
    for _ in range(3):
        grads = gradients(shapes, world.rank)
        sync.on_gradients(0, grads)
        for mine, want in zip(grads, reference(shapes, world.size)):
            np.testing.assert_allclose(mine, want, rtol=2e-6, atol=2e-7)


def check_strided(world):
    """A view that is not contiguous gets the mean too, and its neighbours stay."""
    wide = np.full((6, 8), world.rank + 1, dtype=np.float32)
    for bucket_bytes in (4, 1 << 20):
        wide[:] = world.rank + 1
        AllReduce(world, bucket_bytes).on_gradients(0, [wide[:, ::2]])
        assert (wide[:, ::2] == (world.size + 1) / 2).all()
        assert (wide[:, 1::2] == world.rank + 1).all()


def check_values(world):
    value = {"rank": world.rank, "words": ["a", None, True], "number": 0.1 * world.rank}
    everyone = world.allgather(value)
    assert [each["rank"] for each in everyone] == list(range(world.size))
    assert everyone[world.rank] == value
    gathered = world.gather(value)
    assert gathered == (everyone if world.rank == 0 else None)
    for wrong in (object(), b"bytes", {1, 2}):
        try:
            world.allgather(wrong)
        except TypeError:
            continue
        raise AssertionError(f"{wrong!r} was taken")


def check_broadcast(world):
    for root in range(world.size):
        for dtype in (np.float32, np.float64, np.uint8, np.int64):
            buffer = np.full((3, 5), world.rank, dtype=dtype)
            world.broadcast(buffer, root)
            assert (buffer == root).all()


def check_pieces(world):
    """A buffer cut into many MPI calls (as one beyond 2^31 bytes would be) sums and travels whole."""
    small = World(piece_elements=7)
    buffer = np.arange(45, dtype=np.float32).reshape(9, 5) * (world.rank + 1)
    small.allreduce(buffer)
    total = world.size * (world.size + 1) / 2
    np.testing.assert_array_equal(buffer, np.arange(45, dtype=np.float32).reshape(9, 5) * total)
    buffer[:] = world.rank
    small.broadcast(buffer, world.size - 1)
    assert (buffer == world.size - 1).all()
    try:
        small.allreduce(np.zeros((4, 4), np.float32)[:, ::2])
    except ValueError:
        return
    raise AssertionError("a buffer with gaps was taken")


def main():
    world = World()
    assert world.size == int(sys.argv[1])
    assert world.transport.startswith("MPICH 4"), world.transport
    assert world.transport.endswith("UCX_TLS=tcp,self"), world.transport
    held = 0
    for shapes in SHAPES.values():
        for bucket_bytes in BUCKETS:
            check_mean(world, shapes, bucket_bytes)
            held += 1
    for check in (check_repeats, check_strided, check_values, check_broadcast, check_pieces):
        check(world)
        held += 1
    world.barrier()
    if world.rank == 0:
        print(f"{held} cases held")
    world.close()
    world.close()


if __name__ == "__main__":
    main()
