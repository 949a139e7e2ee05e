"""Nets with parameters, run by the torch engine and by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.export import onnx_net
from caffe_on_grid.proto import graph, schema, shapes, text
from caffe_on_grid.worker import offline

Values = dict[str, Any]


def net_of(source: str) -> Any:
    """The TEST net of a prototxt's text."""
    net = text.parse(schema.NetParameter, source, "net")
    return graph.filter_net(net, schema.NetState(phase=schema.TEST))


def inputs(net: Any, known: shapes.NetShapes, batch: int | None = None, seed: int = 1) -> Values:
    """Values for the net's inputs, of `batch` samples."""
    rng = np.random.RandomState(seed)
    tops = [top for layer in net.layer if layer.type == "Input" for top in layer.top]
    sizes = {top: (batch or known.blobs[top][0], *known.blobs[top][1:]) for top in tops}
    return {top: rng.randn(*size).astype(np.float32) for top, size in sizes.items()}


def parameters(known: shapes.NetShapes, seed: int = 2) -> dict[str, list[Any]]:
    """Values for the parameters, such that deep nets neither vanish nor saturate; BatchNorm's sums are positive."""
    rng = np.random.default_rng(seed)
    found = {}
    for layer in known.layers:
        spread = [np.sqrt(2 / max(1, np.prod(shape[1:]))) if len(shape) > 1 else 0.3 for shape in layer.param_shapes]
        held = [rng.standard_normal(shape, np.float32) * np.float32(s) for shape, s in zip(layer.param_shapes, spread)]
        if layer.type == "BatchNorm":
            held = [held[0], 2 + np.abs(held[1]), np.full(layer.param_shapes[2], 2, np.float32)]
        if held and layer.type in ("Scale", "Normalize"):
            held[0] = held[0] + 1
        if held:
            found[layer.name] = held
    return found


def engine(net: Any, held: dict[str, list[Any]], scratch: Path) -> Any:
    """The torch engine with these parameters; fillers are left out, for they take their time."""
    bare = schema.NetParameter()
    bare.CopyFrom(net)
    for layer in bare.layer:
        for param in (layer.convolution_param, layer.inner_product_param):
            param.ClearField("weight_filler")
    made = registry.create("torch", offline.plan(bare, "TEST", scratch))
    values = [values for layer in net.layer for values in held.get(layer.name, ())]
    for blob, given in zip(made.all_params(), values):
        blob[...] = given
    return made


def onnx(net: Any, known: shapes.NetShapes, held: dict[str, list[Any]]) -> Any:
    """An onnxruntime session of the exported net."""
    return session(onnx_net.content(net, known, held))


def session(content: bytes) -> Any:
    """An onnxruntime session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    """Equal shapes, and values within `tolerance` of the largest."""
    assert found.shape == wanted.shape
    assert np.isfinite(wanted).all() and np.ptp(wanted) > 0
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()
