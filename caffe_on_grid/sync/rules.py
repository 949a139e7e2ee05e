"""The arithmetic of synchronisation: which blobs travel together. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def buckets(sizes: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    """Blob indices of each exchange, in the order in which backward finishes them: the last blob of the net first.

    `sizes` are the blobs' elements and `limit` the most elements that travel together; a blob above it travels alone.
    Every blob is in exactly one bucket and the order is the same on every rank, as collectives demand.
    """
    if limit < 1:
        raise ValueError(f"a bucket holds at least one element, not {limit}")
    return list(_fill(sizes, limit))


def _fill(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, ...]]:
    bucket: list[int] = []
    held = 0
    for index in reversed(range(len(sizes))):
        if bucket and held + sizes[index] > limit:
            yield tuple(bucket)
            bucket, held = [], 0
        bucket.append(index)
        held += sizes[index]
    if bucket:
        yield tuple(bucket)


def places(sizes: Sequence[int], bucket: Sequence[int]) -> list[tuple[int, int, int]]:
    """(blob, start, stop) in elements of each blob of a bucket, packed without gaps in the bucket's order."""
    packed, start = [], 0
    for index in bucket:
        packed.append((index, start, start + sizes[index]))
        start += sizes[index]
    return packed
