"""Feeds from argv[1].

"wait" prints the feeders' process ids and keeps going; "digest" prints the batches' hashes; "limited" goes through one
epoch with little private memory allowed and prints the highest value of each kind of the feeder's memory.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from pathlib import Path

from caffe_on_grid.data import feed, lmdb_source
from caffe_on_grid.data.api import FeedPlan, TransformPlan

TRANSFORMS = TransformPlan(), TransformPlan(scale=0.1, mirror=True), TransformPlan(scale=0.3, crop=5)


def wait(path: str) -> None:
    plan = FeedPlan(path, "data", "label", 4, "TRAIN", 0, 1, 7, feeders=2)
    running = feed.start(plan)
    print(json.dumps([one.pid for one in running._feeders]), flush=True)
    while True:
        running.batch()
        time.sleep(0.001)


def digest(path: str) -> None:
    found = []
    for transform in TRANSFORMS:
        running = feed.start(FeedPlan(path, "data", "label", 4, "TRAIN", 0, 1, 7, transform=transform))
        total = hashlib.sha256()
        for _ in range(9):
            for array in running.batch().values():
                total.update(array.tobytes())
        running.close()
        found.append(total.hexdigest())
    print(json.dumps(found))


def memory(pid: int | str) -> dict[str, int]:
    """The kinds of memory of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith(("Rss", "VmData"))}


def limited(path: str) -> None:
    lmdb_source.RESIDENT_BYTES = 48 << 20
    allowed = memory("self")["VmData"] + (64 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    running = feed.start(FeedPlan(path, "data", "label", 8, "TRAIN", 0, 1, 7, transform=TransformPlan(crop=100)))
    seen = []
    for _ in range(running.records // 8):
        running.batch()
        seen.append(memory(running._feeders[0].pid))
    running.close()
    print(json.dumps({kind: max(one[kind] for one in seen) for kind in seen[0]}))


if __name__ == "__main__":
    {"wait": wait, "digest": digest, "limited": limited}[sys.argv[2]](sys.argv[1])
