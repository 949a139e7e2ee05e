from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from caffe_on_grid.data import shard
from caffe_on_grid.data.api import FeedPlan

sizes = st.integers(1, 40)


def plan(**changes) -> FeedPlan:
    fixed = {"batch": 4, "phase": "TRAIN", "rank": 0, "world": 1, "seed": 7}
    return FeedPlan("/source", "data", "label", **{**fixed, **changes})


def drawn(one: FeedPlan, records: int, batches: int) -> list[list[int]]:
    stream = shard.stream(one, records)
    return [list(stream.indices(shard.positions(one, n))) for n in range(batches)]


def interleaved(one: FeedPlan, records: int, batches: int) -> list[int]:
    """What all ranks of the world get, in the order of the stream."""
    ranks = [drawn(replace(one, rank=rank), records, batches) for rank in range(one.world)]
    return [index for n in range(batches) for rank in ranks for index in rank[n]]


def test_the_order_is_the_same_in_every_numpy():
    assert shard.epoch_order(10, seed=7, epoch=3).tolist() == [2, 7, 1, 4, 5, 0, 6, 3, 8, 9]
    assert shard.epoch_order(10, seed=7 + (1 << 32), epoch=3).tolist() != [2, 7, 1, 4, 5, 0, 6, 3, 8, 9]
    assert shard.epoch_order(10, seed=-1, epoch=0).tolist() == shard.epoch_order(10, seed=2**64 - 1, epoch=0).tolist()


@given(records=sizes, batch=sizes, world=st.integers(1, 5), seed=st.integers(-(2**63), 2**64), shuffle=st.booleans())
def test_every_record_once_per_epoch(records, batch, world, seed, shuffle):
    one = plan(batch=batch, world=world, seed=seed, shuffle=shuffle)
    batches = -(-2 * records // (batch * world))
    stream = interleaved(one, records, batches)
    for epoch in range(2):
        assert sorted(stream[epoch * records : (epoch + 1) * records]) == list(range(records))


@given(records=sizes, batch=st.integers(1, 7), world=st.integers(1, 5), first=st.integers(0, 9))
def test_many_ranks_see_what_one_rank_with_the_whole_batch_sees(records, batch, world, first):
    many = interleaved(plan(batch=batch, world=world, first=first), records, 5)
    alone = drawn(plan(batch=batch * world, first=first), records, 5)
    assert many == [index for one in alone for index in one]


@given(records=sizes, first=st.integers(0, 20))
def test_a_later_start_continues_the_stream(records, first):
    assert drawn(plan(first=first), records, 3) == drawn(plan(), records, first + 3)[first:]


def test_source_order_wraps():
    assert drawn(plan(shuffle=False), 6, 3) == [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]


def test_epochs_differ_and_seeds_differ():
    orders = {tuple(shard.epoch_order(30, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_test_passes_are_spread_over_ranks_in_source_order():
    one = plan(phase="TEST", batch=2, world=2, passes=3)
    assert [shard.batches_in_pass(replace(one, rank=rank)) for rank in range(2)] == [2, 1]
    assert drawn(one, 10, 4) == [[0, 1], [4, 5], [6, 7], [0, 1]]
    assert drawn(replace(one, rank=1), 10, 2) == [[2, 3], [8, 9]]
    assert drawn(replace(one, rank=1, first=1), 10, 1) == [[8, 9]]


@given(records=sizes, batch=st.integers(1, 5), world=st.integers(1, 5), passes=st.integers(1, 7))
def test_a_test_pass_is_what_one_rank_would_see(records, batch, world, passes):
    one = plan(phase="TEST", batch=batch, passes=passes)
    expected = Counter(map(tuple, drawn(one, records, 2 * passes)))
    found: Counter[tuple[int, ...]] = Counter()
    for rank in range(world):
        mine = replace(one, rank=rank, world=world)
        found.update(map(tuple, drawn(mine, records, 2 * shard.batches_in_pass(mine)) if rank < passes else []))
    assert found == expected


def test_order_is_a_permutation_of_int64():
    assert shard.epoch_order(5, 0, 0).dtype == np.int64
