"""`nets_in_caffe.py FOLDER`, in the runtime's Python: what real Caffe gives for each net of FOLDER/cases.json.

For each case FOLDER/<name>.npz holds the filled parameters, and for each pass its blobs, gradients and parameters. A
CHECK that fails ends the process: the last name on stdout is the case.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import caffe
import numpy as np
from oracle.net_cases import inputs, new_params


def blobs(net: Any) -> dict[str, Any]:
    """Blobs that the prototxt names."""
    return {name: blob for name, blob in net.blobs.items() if "_split" not in name}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """All arrays of a case."""
    Path("net.prototxt").write_text(case["net"])
    caffe.set_random_seed(5)
    net = caffe.Net("net.prototxt", {"TRAIN": caffe.TRAIN, "TEST": caffe.TEST}[case["phase"]])
    params = {f"{name}/{i}": blob for name, group in net.params.items() for i, blob in enumerate(group)}
    found = {f"init:{key}": blob.data.copy() for key, blob in params.items()}
    for key, value in new_params(case, {key: blob.data.shape for key, blob in params.items()}).items():
        params[key].data[...] = value
    for at in range(case["passes"]):
        for name, value in inputs(case, at).items():
            net.blobs[name].reshape(*value.shape)
            net.blobs[name].data[...] = value
        net._forward(0, len(net.layers) - 1)
        found.update({f"{at}:blob:{name}": blob.data.copy() for name, blob in blobs(net).items()})
        if case["backward"]:
            net.clear_param_diffs()
            net._backward(len(net.layers) - 1, 0)
            found.update({f"{at}:diff:{name}": net.blobs[name].diff.copy() for name in case["diffs"]})
            found.update({f"{at}:paramdiff:{key}": blob.diff.copy() for key, blob in params.items()})
        found.update({f"{at}:param:{key}": blob.data.copy() for key, blob in params.items()})
    return found


def main(folder: Path) -> None:
    """Run every case."""
    for case in json.loads((folder / "cases.json").read_text()):
        print(case["name"], flush=True)
        np.savez(folder / f"{case['name']}.npz", **run(case))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
