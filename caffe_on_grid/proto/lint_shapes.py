"""One-line warnings that need a net's shapes; `lint` has those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from caffe_on_grid.proto import in_place, schema
from caffe_on_grid.proto.shapes_base import LayerShapes, NetShapes, count
from caffe_on_grid.proto.shapes_wiring import branches

MODEL_BYTES = 2**31
"""Protobuf's limit for one message: a larger .caffemodel cannot be read again."""

_TOLD_ELSEWHERE = ("Convolution", "Deconvolution", "InnerProduct", "Embed", "BatchNorm")
"""Types whose short lists of param `lint` tells of, or that do not learn."""
_JOINS = ("Eltwise", "Concat")


def warnings(solver: Any, net: Any, shapes: NetShapes) -> list[str]:
    """What is worth a word about a filtered net of known shapes, in the order of its layers; each once."""
    specs = {layer.name: layer for layer in net.layer}
    found = list(_large_model(solver, shapes))
    for at, layer in enumerate(shapes.layers):
        for rule in _TRAIN_RULES if shapes.train else _RULES:
            found += [f"layer {layer.name!r}: {line}" for line in rule(shapes, at, specs[layer.name])]
    return list(dict.fromkeys(found))


def _large_model(solver: Any, shapes: NetShapes) -> Iterator[str]:
    hdf5 = solver.snapshot_format == schema.ENUMS["SolverParameter.SnapshotFormat"]["HDF5"]
    if shapes.train and shapes.total("parameter_bytes") >= MODEL_BYTES and not hdf5:
        yield "solver: the model is larger than 2 GiB, which a .caffemodel cannot be: set snapshot_format: HDF5"


def _rounding(shapes: NetShapes, at: int, spec: Any) -> Iterator[str]:
    """Branches that only happen to have one size: pooling rounds up where convolution rounds down."""
    layer = shapes.layers[at]
    if layer.type not in _JOINS or len(set(layer.sources)) < 2:
        return
    parts = branches(shapes.layers, layer.sources)
    up, down = ([_strided(shapes, part, way) for part in parts] for way in (True, False))
    for i, pools in enumerate(up):
        others = [name for j, names in enumerate(down) if j != i for name in names]
        if pools and others:
            yield (
                f"joins {pools[0]!r}, which rounds up, and {others[0]!r}, which rounds down: "
                "equal at this size, not at every size"
            )
            return


def _strided(shapes: NetShapes, part: set[int], up: bool) -> list[str]:
    """Layers of a branch whose windows step by more than one and round that way."""
    layers = [shapes.layers[at] for at in sorted(part)]
    return [layer.name for layer in layers if any(w.up is up and w.stride > 1 for w in layer.windows)]


def _in_place(layer: LayerShapes) -> bool:
    return bool(layer.tops and layer.bottoms and layer.tops[0] == layer.bottoms[0])


def _after(shapes: NetShapes, at: int, spec: Any) -> Iterator[str]:
    """Caffe's gradients are wrong behind an in-place layer that overwrites what its producer reads again."""
    layer = shapes.layers[at]
    maker = shapes.layers[layer.sources[0]] if _in_place(layer) else None
    if maker is not None and maker.type in in_place.READS_TOP:
        yield (
            f"works in place on the top of {maker.name!r}, whose backward pass ({maker.type}) reads it again: "
            "Caffe's gradient is wrong there; give it a top of another name"
        )


def _own(shapes: NetShapes, at: int, spec: Any) -> Iterator[str]:
    """Caffe's gradients are wrong for some types in place."""
    layer = shapes.layers[at]
    if _in_place(layer) and in_place.fault(spec):
        yield f"{layer.type} in place has a wrong gradient in Caffe; give it a top of another name"


def _overwriting(shapes: NetShapes, at: int, spec: Any) -> Iterator[str]:
    layer = shapes.layers[at]
    if _in_place(layer) and layer.type in in_place.OVERWRITES:
        yield f"{layer.type} in place overwrites what it reads: Caffe's numbers are wrong; give its top another name"


def _short(shapes: NetShapes, at: int, spec: Any) -> Iterator[str]:
    layer = shapes.layers[at]
    given, blobs = len(spec.param), len(layer.param_shapes)
    if 0 < given < blobs and layer.type not in _TOLD_ELSEWHERE and spec.param[given - 1].lr_mult != 1:
        yield f"{given} param for {blobs} parameter blobs: the others learn with lr_mult 1"


def _single(shapes: NetShapes, at: int, spec: Any) -> Iterator[str]:
    """Statistics over one value are that value."""
    layer = shapes.layers[at]
    if layer.type != "BatchNorm" or spec.batch_norm_param.use_global_stats:
        return
    shape = layer.top_shapes[0]
    if count(shape) == shape[1]:
        yield "normalises over a single value: its output is 0 in training; use a larger batch"


def _mixing(shapes: NetShapes, at: int, spec: Any) -> Iterator[str]:
    """A bilinear filler is meant for one channel at a time."""
    layer, filler = shapes.layers[at], spec.convolution_param.weight_filler.type
    if layer.type == "Deconvolution" and filler == "bilinear" and layer.param_shapes[0][1] > 1:
        yield "a bilinear weight_filler without group adds all channels up: set group to the number of channels"


_Rule = Callable[[NetShapes, int, Any], Iterator[str]]
_RULES: tuple[_Rule, ...] = (_rounding, _mixing, _overwriting)
_TRAIN_RULES: tuple[_Rule, ...] = (*_RULES, _after, _own, _short, _single)
