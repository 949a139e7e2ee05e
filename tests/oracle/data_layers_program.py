"""Batches of our feed and of Caffe's own Data layer, side by side: argv = cases.json out.npz.

A case: {"name", "source", "transform" (text), "phase", "batch", "batches", "seed"}. Writes `<name>/ours/data`,
`…/label`, `<name>/caffe/data`, `…/label`, each [batches, …].
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from caffe_on_grid.data import feed, transform
from caffe_on_grid.data.api import FeedPlan
from caffe_on_grid.proto import schema, text

NET = """
layer {{ name: "d" type: "Data" top: "data" top: "label" transform_param {{ {transform} }}
        data_param {{ source: "{source}" backend: LMDB batch_size: {batch} }} }}
"""


def ours(case: dict) -> dict[str, np.ndarray]:
    """What our feed makes, in the source's order."""
    message = text.parse(schema.TransformationParameter, case["transform"], case["name"])
    made = transform.plan(message, lambda path: Path(path).read_bytes(), case["phase"])
    plan = FeedPlan(
        case["source"], "data", "label", case["batch"], case["phase"], 0, 1, case["seed"],
        shuffle=False, passes=case["batches"], transform=made,
    )  # fmt: skip
    running = feed.start(plan)
    try:
        return stacked(running.batch, case["batches"])
    finally:
        running.close()


def caffes(case: dict) -> dict[str, np.ndarray]:
    """What Caffe's Data layer makes."""
    import caffe

    with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
        file.write(NET.format(**case))
        file.flush()
        caffe.set_random_seed(case["seed"])
        net = caffe.Net(file.name, caffe.TRAIN if case["phase"] == "TRAIN" else caffe.TEST)
    return stacked(lambda: net.forward() and {top: net.blobs[top].data for top in ("data", "label")}, case["batches"])


def stacked(batch: Callable[[], dict[str, np.ndarray]], count: int) -> dict[str, np.ndarray]:
    batches = [{top: array.copy() for top, array in batch().items()} for _ in range(count)]
    return {top: np.stack([one[top] for one in batches]) for top in ("data", "label")}


def main(cases_file: str, out: str) -> None:
    cases = json.loads(Path(cases_file).read_text())
    found = {}
    for who, make in (("ours", ours), ("caffe", caffes)):
        for case in cases:
            found.update({f"{case['name']}/{who}/{top}": array for top, array in make(case).items()})
    np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
