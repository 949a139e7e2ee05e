"""Claim: a feeder's RssAnon does not grow with the data beyond the keys, and the pages that it maps are bounded.

Feeds MNIST-sized records from LMDBs of 1,000 and 60,000 records for the same number of batches, then large ones from
a database of `--large-mib` (2048). Prints one JSON object; all sizes in bytes, `peak` is the highest value seen.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from caffe_on_grid.data import datum, feed
from caffe_on_grid.data.api import FeedPlan, TransformPlan
from caffe_on_grid.data.lmdb_source import LmdbWriter

BATCH = 64
KEY_BYTES = 8
SMALL, LARGE = (1, 28, 28), (3, 256, 256)


def database(folder: Path, records: int, shape: tuple[int, int, int]) -> str:
    """An LMDB of `records` random images."""
    writer = LmdbWriter(str(folder))
    random = np.random.RandomState(0)
    for index in range(records):
        pixels = np.frombuffer(random.bytes(shape[0] * shape[1] * shape[2]), np.uint8).reshape(shape)
        writer.put(b"%08d" % index, datum.raw(pixels, index % 10).SerializeToString())
    writer.close()
    return str(folder)


def resident(pid: int) -> dict[str, int]:
    """RssAnon, RssFile and RssShmem of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss")}


def readings(path: str, batches: int, plan: TransformPlan) -> Iterator[dict[str, int]]:
    """The feeder's memory after each batch."""
    running = feed.start(FeedPlan(path, "data", "label", BATCH, "TRAIN", 0, 1, 1, transform=plan))
    try:
        for _ in range(batches):
            running.batch()
            yield resident(running._feeders[0].pid)
    finally:
        running.close()


def peak(path: str, batches: int, plan: TransformPlan) -> dict[str, int]:
    """The highest value of each kind of memory, and of the growth of RssAnon after the first batch."""
    seen = list(readings(path, batches, plan))
    highest = {kind: max(one[kind] for one in seen) for kind in seen[0]}
    return {**highest, "RssAnon_growth": highest["RssAnon"] - seen[0]["RssAnon"]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large-mib", type=int, default=2048)
    large_mib = parser.parse_args().large_mib
    with tempfile.TemporaryDirectory() as folder:
        few, many = (peak(database(Path(folder, str(n)), n, SMALL), 1000, TransformPlan()) for n in (1_000, 60_000))
        count = (large_mib << 20) // (LARGE[0] * LARGE[1] * LARGE[2])
        big = peak(database(Path(folder, "large"), count, LARGE), count // BATCH, TransformPlan(mirror=True, crop=227))
    keys = 59_000 * (KEY_BYTES + 8 + 8)
    grown = many["RssAnon"] - few["RssAnon"]
    print(json.dumps({
        "benchmark": "feed_memory",
        "peak_1000_records": few,
        "peak_60000_records": many,
        "RssAnon_difference": grown,
        "keys_offsets_and_order": keys,
        "large_mib": large_mib,
        "peak_large": big,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
