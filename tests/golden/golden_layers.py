"""`golden_layers.py ENGINE FOLDER`, in the ranks' Python: each layer of FOLDER/layers forward and backward, as JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Case = Mapping[str, Any]


def indexed(case: Case, key: str) -> dict[int, Any]:
    """The arrays `key_0`, `key_1`, … that the case has."""
    found = {int(k.rsplit("_", 1)[1]): case[k] for k in case if k.rsplit("_", 1)[0] == key}
    return dict(sorted(found.items()))


def caffe_layer(case: Case) -> dict[str, Any]:
    """The case's net in real Caffe: the arrays it should reproduce, under the case's keys."""
    import caffe

    Path("net.prototxt").write_text(str(case["prototxt"]))
    net = caffe.Net("net.prototxt", {"TRAIN": caffe.TRAIN, "TEST": caffe.TEST}[str(case["phase"])])
    params = list(net.params.get(str(case["layer"]), ()))
    for at, name in indexed(case, "bottomname").items():
        source = str(name) if f"{name}_in" not in net.blobs else f"{name}_in"  # a Bias layer stands between
        net.blobs[source].data[...] = case[f"bottom_{at}"]
    for at, value in indexed(case, "param").items():
        params[at].data[...] = value
    net._forward(0, len(net.layers) - 1)
    tops = {at: net.blobs[str(name)] for at, name in indexed(case, "topname").items()}
    found = {f"top_{at}": blob.data.copy() for at, blob in tops.items()}
    found.update({f"paramafter_{at}": blob.data.copy() for at, blob in enumerate(params)})
    if indexed(case, "topdiff"):
        found.update(caffe_backward(net, case, tops, params))
    return found


def caffe_backward(net: Any, case: Case, tops: Mapping[int, Any], params: list[Any]) -> dict[str, Any]:
    """Gradients for the case's top gradients, by the steps with which the values were recorded.

    They cleared the bottoms' gradients last. HingeLoss leaves its gradient there in the forward pass, and Reshape's
    top and bottom share theirs: the recorded bottom gradients of these two are therefore zero, not what training gives.
    """
    bottoms = {at: net.blobs[str(name)] for at, name in indexed(case, "bottomname").items()}
    net.clear_param_diffs()
    for at, value in indexed(case, "topdiff").items():
        tops[at].diff[...] = value
    for blob in bottoms.values():
        blob.diff[...] = 0
    net._backward(len(net.layers) - 1, 0)
    found = {f"paramdiff_{at}": blob.diff.copy() for at, blob in enumerate(params)}
    return {**found, **{f"bottomdiff_{at}": blob.diff.copy() for at, blob in bottoms.items()}}


RUNNERS: dict[str, Callable[[Case], dict[str, Any]]] = {"caffe": caffe_layer}
"""Engine → what gives a case's arrays."""

CHECKED = ("top", "paramafter", "bottomdiff", "paramdiff")


def errors(case: Case, found: Mapping[str, Any]) -> dict[str, float]:
    """For each array of the case: largest difference, relative to the array's largest magnitude."""
    keys = [f"{key}_{at}" for key in CHECKED for at in indexed(case, key)]
    return {key: relative(found[key], case[key]) for key in keys}


def relative(value: Any, wanted: Any) -> float:
    """Largest difference over largest magnitude; NaN in the same places counts as equal."""
    assert value.shape == wanted.shape, (value.shape, wanted.shape)
    if not wanted.size:
        return 0.0
    assert (np.isnan(value) == np.isnan(wanted)).all()
    scale = float(np.nanmax(np.abs(wanted))) or 1.0
    return float(np.nanmax(np.abs(value - wanted))) / scale


def main(engine: str, folder: Path) -> None:
    """Run every case; print case → errors, or a traceback."""
    outcomes: dict[str, Any] = {}
    cases = sorted(folder.resolve().glob("layers/*.npz"))
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        for path in cases:
            with np.load(path, allow_pickle=False) as case:
                try:
                    outcomes[path.stem] = errors(dict(case), RUNNERS[engine](dict(case)))
                except Exception:
                    outcomes[path.stem] = traceback.format_exc()
        os.chdir("/")
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
