"""The synchroniser against an exchange written down here (what MPI does is shown in tests/mpi)."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_on_grid.comm.local import Local
from caffe_on_grid.comm.mpi import describe, pieces
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec.job import SyncSpec
from caffe_on_grid.sync import registry
from caffe_on_grid.sync.allreduce import AllReduce


class Threefold:
    """Three ranks that all hold the same values; remembers what it was given."""

    rank, size = 0, 3

    def __init__(self):
        self.given = []

    def allreduce(self, buffer):
        assert buffer.flags.c_contiguous
        self.given.append((buffer.__array_interface__["data"][0], buffer.size))
        buffer *= 3


def test_small_blobs_travel_together_and_large_ones_where_they_lie():
    comm = Threefold()
    grads = [np.full(shape, i + 1, np.float32) for i, shape in enumerate([(2, 2), (3,), (50,), (), (5,)])]
    want = [grad.copy() for grad in grads]
    AllReduce(comm, 40).on_gradients(0, grads)
    for mine, same in zip(grads, want):
        np.testing.assert_array_equal(mine, same)
    assert [size for _, size in comm.given] == [6, 50, 7]
    assert comm.given[1][0] == grads[2].__array_interface__["data"][0]


def test_a_large_model_is_not_copied():
    sync = AllReduce(Threefold(), 1 << 20)
    sync.on_gradients(0, [np.ones(1 << 20, np.float32), np.ones(9, np.float32), np.ones(3, np.float32)])
    assert sync._packed.nbytes == 12 * 4


def test_gradients_of_another_type_are_refused():
    with pytest.raises(TypeError, match="float32"):
        AllReduce(Threefold(), 1 << 20).on_gradients(0, [np.ones(3)])


def test_a_world_of_one_exchanges_nothing():
    comm = Local()
    sync = registry.create("allreduce", comm, SyncSpec())
    grads = [np.arange(5, dtype=np.float32)]
    sync.on_gradients(0, grads)
    np.testing.assert_array_equal(grads[0], np.arange(5))
    assert (comm.bytes, sync.seconds) == (0, 0.0)


def test_an_unknown_strategy_names_the_known():
    with pytest.raises(ConfigError, match=r"--sync alreduce: .*did you mean 'allreduce'.*known: allreduce"):
        registry.create("alreduce", Local(), SyncSpec())


def test_a_bucket_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="bucket_mib 0"):
        registry.create("allreduce", Local(), SyncSpec(bucket_mib=0))
    with pytest.raises(ValueError, match="at least one float32"):
        AllReduce(Local(), 3)


def test_local_gives_values_back_as_json_would():
    assert Local().allgather({"a": (1, 2)}) == [{"a": [1, 2]}]
    with pytest.raises(TypeError):
        Local().gather(object())
    with pytest.raises(ValueError, match="root 1"):
        Local().broadcast(np.zeros(1), 1)


@pytest.mark.parametrize(("size", "limit", "want"), [(0, 4, []), (4, 4, [4]), (9, 4, [4, 4, 1]), (1, 4, [1])])
def test_pieces_cover_the_buffer(size, limit, want):
    buffer = np.zeros(size, np.float32)
    assert [piece.size for piece in pieces(buffer, limit)] == want
    for piece in pieces(buffer, limit):
        piece += 1
    assert (buffer == 1).all()


MPICH = "MPICH Version:      4.3.2\nMPICH Release date: today\nMPICH Device:       ch4:ucx ofi\n"
TRANSPORTS = [
    (MPICH, {}, "MPICH 4.3.2 (ch4:ucx ofi)"),
    (MPICH, {"UCX_TLS": "tcp,self", "HOME": "/x"}, "MPICH 4.3.2 (ch4:ucx ofi), UCX_TLS=tcp,self"),
    (
        MPICH,
        {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"},
        "MPICH 4.3.2 (ch4:ucx ofi), FI_PROVIDER=tcp, MPIR_CVAR_CH4_NETMOD=ofi",
    ),
    ("Open MPI v4.1.4, package: x", {}, "Open MPI v4.1.4"),
]


@pytest.mark.parametrize(("library", "environment", "want"), TRANSPORTS)
def test_the_transport_in_words(library, environment, want):
    assert describe(library, environment) == want
