"""In the ranks' Python: what real Caffe makes of nets. Lines of stdin are JSON [prototxt, phase, forward], answers too:

`{"layers": [[name, type, names of tops, shapes of tops, shapes of parameters], …]}` or `{"refused": its words}`. With
`forward` the net runs once too. Caffe aborts on what it refuses, so each net is built in a fork.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

import caffe


def build(prototxt: str, phase: str, forward: bool) -> dict[str, Any]:
    """The layers of the net, with the splits that Caffe adds."""
    with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
        file.write(prototxt)
        file.flush()
        net = caffe.Net(file.name, {"TRAIN": caffe.TRAIN, "TEST": caffe.TEST}[phase])
    if forward:
        net._forward(0, len(net.layers) - 1)
    names = list(net._blob_names)
    layers = []
    for at, layer in enumerate(net.layers):
        tops = list(net._top_ids(at))
        shapes = [list(net._blobs[t].shape) for t in tops]
        params = [list(blob.shape) for blob in layer.blobs]
        layers.append([net._layer_names[at], layer.type, [names[t] for t in tops], shapes, params])
    return {"layers": layers}


def forked(prototxt: str, phase: str, forward: bool) -> dict[str, Any]:
    """`build` in a child."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as made:
        child = os.fork()
        if not child:
            os.dup2(said.fileno(), 2)
            made.write(json.dumps(build(prototxt, phase, forward)))
            made.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        made.seek(0)
        if status == 0:
            return json.loads(made.read())
        lines = [line for line in said.read().splitlines() if "Check failed" in line or line.startswith("F")]
        return {"refused": lines[0] if lines else f"status {status}"}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(forked(*json.loads(line))), flush=True)
