"""Asks real Caffe what the oracle tests of the proto room compare with; runs in the runtime's Python.

`proto_in_caffe.py filter STATES_JSON NET` | `rates SOLVER…` | `models FOLDER` | `schema`: one JSON value on stdout.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import caffe
import numpy as np
from caffe.proto import caffe_pb2

from caffe_on_grid.proto import schema


def facts(field: object) -> dict[str, object]:
    """What makes a field what it is on the wire and in text."""
    enum = field.enum_type and {value.name: value.number for value in field.enum_type.values}
    inner = field.message_type and field.message_type.name
    default = None if inner else field.default_value
    same = {name: getattr(field, name) for name in ("number", "type", "label")}
    return {**same, "default": str(default), "enum": enum, "packed": field.GetOptions().packed, "inner": inner}


def schema_differences() -> list[str]:
    """Fields of real Caffe's messages that ours lack or hold differently; the number compared comes first."""
    found, compared = [], 0
    for name, message in caffe_pb2.DESCRIPTOR.message_types_by_name.items():
        ours = schema.message(name).DESCRIPTOR.fields_by_name
        compared += len(message.fields)
        found += [f"{name}.{f.name}" for f in message.fields if f.name not in ours or facts(ours[f.name]) != facts(f)]
    return [str(compared), *found]


def filtered(states: str, net: str) -> list[list[str]]:
    """Layer names of the net under each state [phase, level, stages]."""
    built = (caffe.Net(net, phase, level=level, stages=stages) for phase, level, stages in json.loads(states))
    return [list(one._layer_names) for one in built]


def rates(*solvers: str) -> list[list[float]]:
    """Each solver's rate before each of twelve steps."""
    found = []
    for path in solvers:
        solver, own = caffe.get_solver(path), []
        for _ in range(12):
            own.append(float(solver.lr))
            solver.step(1)
        found.append(own)
    return found


NET = (
    'input: "x" input_shape { dim: 1 dim: 2 dim: 5 dim: 5 }'
    ' layer { name: "conv" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 3 kernel_size: 3'
    ' weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0.5 } } }'
    ' layer { name: "bn" type: "BatchNorm" bottom: "y" top: "y" }'
    ' layer { name: "ip" type: "InnerProduct" bottom: "y" top: "z" inner_product_param { num_output: 4'
    ' weight_filler { type: "gaussian" } } }'
)


def legacy(layer: object, **blob: object) -> None:
    """Add a blob in the old four-number form to a V1 layer."""
    values = np.asarray(blob.pop("values"))
    added = layer.blobs.add(**blob)
    (added.double_data if values.dtype == float else added.data).extend(values.ravel().tolist())


def models(folder: str) -> dict[str, dict[str, list[list[float]]]]:
    """Write models of each generation; what real Caffe holds after loading each: layer → flat blobs."""
    place = Path(folder)
    (place / "net.prototxt").write_text(NET)
    caffe.set_random_seed(3)
    net = caffe.Net(str(place / "net.prototxt"), caffe.TEST)
    net.save(str(place / "new.caffemodel"))
    old = caffe_pb2.NetParameter(name="old")
    conv = old.layers.add(name="conv", type=caffe_pb2.V1LayerParameter.CONVOLUTION, bottom=["x"], top=["y"])
    legacy(conv, num=3, channels=2, height=3, width=3, values=net.params["conv"][0].data.astype(np.float32))
    legacy(conv, num=1, channels=1, height=1, width=3, values=net.params["conv"][1].data.astype(float))
    ip = old.layers.add(name="ip", type=caffe_pb2.V1LayerParameter.INNER_PRODUCT)
    legacy(ip, num=1, channels=1, height=4, width=27, values=net.params["ip"][0].data.astype(float))
    legacy(ip, num=1, channels=1, height=1, width=4, values=net.params["ip"][1].data.astype(np.float32))
    (place / "old.caffemodel").write_bytes(old.SerializeToString())
    return {name: loaded(place, name) for name in ("new", "old")}


def loaded(place: Path, name: str) -> dict[str, list[list[float]]]:
    """What a net holds once it has loaded a model."""
    net = caffe.Net(str(place / "net.prototxt"), caffe.TEST, weights=str(place / f"{name}.caffemodel"))
    return {layer: [blob.data.ravel().tolist() for blob in blobs] for layer, blobs in net.params.items()}


if __name__ == "__main__":
    caffe.set_mode_cpu()
    print(
        json.dumps(
            {"filter": filtered, "rates": rates, "models": models, "schema": schema_differences}[sys.argv[1]](
                *sys.argv[2:]
            )
        )
    )
