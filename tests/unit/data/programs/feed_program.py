"""Feeds from argv[1]: "wait" prints the feeders' process ids and keeps going, "digest" prints the batches' hashes."""

from __future__ import annotations

import hashlib
import json
import sys
import time

from caffe_on_grid.data import feed
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


if __name__ == "__main__":
    {"wait": wait, "digest": digest}[sys.argv[2]](sys.argv[1])
