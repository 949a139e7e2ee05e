"""Buckets: every blob once, last first, none too full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_on_grid.sync import rules

TABLE = [
    ([], 10, []),
    ([3], 10, [(0,)]),
    ([500, 20, 25000, 50, 400000, 500, 5000, 10], 4_000_000, [(7, 6, 5, 4, 3, 2, 1, 0)]),
    ([4, 4, 4], 8, [(2, 1), (0,)]),
    ([2, 100, 2], 8, [(2,), (1,), (0,)]),
    ([100], 8, [(0,)]),
    ([1, 1, 1], 1, [(2,), (1,), (0,)]),
]


@pytest.mark.parametrize(("sizes", "limit", "want"), TABLE)
def test_buckets(sizes, limit, want):
    assert rules.buckets(sizes, limit) == want


@given(st.lists(st.integers(0, 50)), st.integers(1, 60))
def test_buckets_hold_every_blob_once_in_reverse_order(sizes, limit):
    planned = rules.buckets(sizes, limit)
    assert [index for bucket in planned for index in bucket] == list(reversed(range(len(sizes))))
    assert all(len(bucket) == 1 or sum(sizes[i] for i in bucket) <= limit for bucket in planned)


@given(st.lists(st.integers(0, 50), min_size=1))
def test_places_leave_no_gap(sizes):
    bucket = rules.buckets(sizes, 10_000)[0]
    packed = rules.places(sizes, bucket)
    assert [blob for blob, _, _ in packed] == list(bucket)
    assert [start for _, start, _ in packed] == [0, *(stop for _, _, stop in packed[:-1])]
    assert all(stop - start == sizes[blob] for blob, start, stop in packed)


def test_a_bucket_holds_something():
    with pytest.raises(ValueError, match="at least one"):
        rules.buckets([1], 0)
