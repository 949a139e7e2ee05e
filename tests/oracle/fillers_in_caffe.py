"""`fillers_in_caffe.py CASES`, in the runtime: fills a DummyData blob by each case of a JSON list.

Prints, for each case, the SHA-256 of the values and the draw that comes next (a uniform number, as hexadecimal).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile

import caffe

NET = """
layer {{ name: "filled" type: "DummyData" top: "filled"
  dummy_data_param {{ data_filler {{ {filler} }} shape {{ {dims} }} }} }}
layer {{ name: "next" type: "DummyData" top: "next"
  dummy_data_param {{ data_filler {{ type: "uniform" }} shape {{ dim: 1 }} }} }}
"""


def run(case: dict) -> list[str]:
    """Digest and the next number's bytes."""
    dims = " ".join(f"dim: {size}" for size in case["shape"])
    with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
        file.write(NET.format(filler=case["filler"], dims=dims))
        file.flush()
        caffe.set_random_seed(case["seed"])
        net = caffe.Net(file.name, caffe.TRAIN)
    net.forward()  # set-up fills constants alone, the pass all others, in layer order
    return [hashlib.sha256(net.blobs["filled"].data.tobytes()).hexdigest(), net.blobs["next"].data.tobytes().hex()]


if __name__ == "__main__":
    os.chdir(tempfile.gettempdir())
    caffe.set_mode_cpu()
    print(json.dumps([run(case) for case in json.loads(sys.argv[1])]))
