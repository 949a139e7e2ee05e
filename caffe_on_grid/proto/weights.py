"""Reading .caffemodel files and blobs, whatever Caffe wrote them.

Forks use the same field numbers for different things, so a model is read with a schema of only what weights need: layer
names, types, bottoms, tops and blobs, in each of Caffe's three generations of layers.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, upgrade, upgrade_v0
from caffe_on_grid.proto.schema import FieldSpec

_KEPT = {
    "BlobShape": ("dim",),
    "BlobProto": ("num", "channels", "height", "width", "data", "diff", "shape", "double_data", "double_diff"),
    "NetParameter": ("name", "layers", "layer"),
    "LayerParameter": ("name", "type", "bottom", "top", "blobs"),
    "V1LayerParameter": ("layer", "bottom", "top", "name", "blobs"),
    "V0LayerParameter": ("name", "type", "blobs"),
}
_TABLES: dict[str, dict[str, FieldSpec]] = {
    kind: {name: schema.MESSAGES[kind][name] for name in names} for kind, names in _KEPT.items()
}
_TABLES["V1LayerParameter"]["type"] = FieldSpec("type", 5, "int32")
_TOLERANT = schema.classes("caffe_on_grid.weights", _TABLES)


def read_model(data: bytes, where: str = "model") -> Any:
    """The NetParameter in `data`: name, and layers (today's form) of name, type, bottoms, tops and blobs only.

    Raises ConfigError (naming `where`) for what is not a .caffemodel.
    """
    found = _TOLERANT["NetParameter"]()
    try:
        found.ParseFromString(data)
    except DecodeError as error:
        raise ConfigError(f"{where}: not a .caffemodel (binary NetParameter): {error}") from None
    found.DiscardUnknownFields()
    if data and not (found.layer or found.layers):
        raise ConfigError(f"{where}: not a .caffemodel: it holds no layers")
    model = schema.NetParameter(name=found.name)
    for layer in found.layers:
        _add_old(model, layer)
    for layer in found.layer:
        model.layer.add().ParseFromString(layer.SerializeToString())
    return model


def _add_old(model: Any, layer: Any) -> None:
    """A V1 or V0 layer in today's form; V0 padding layers hold nothing."""
    inner = layer.layer if layer.HasField("layer") else layer
    kind = upgrade.V1_TYPES.get(layer.type, "")
    if inner is not layer:
        number = schema.ENUMS["V1LayerParameter.LayerType"].get(upgrade_v0.V0_TYPES.get(inner.type, ""), 0)
        kind = upgrade.V1_TYPES[number]
    if inner is not layer and inner.type == "padding":
        return
    added = model.layer.add(name=inner.name, type=kind, bottom=layer.bottom, top=layer.top)
    for blob in inner.blobs:
        added.blobs.add().ParseFromString(blob.SerializeToString())


def shape_of(blob: Any) -> tuple[int, ...]:
    """The blob's shape; the legacy form gives (num, channels, height, width)."""
    legacy = ("num", "channels", "height", "width")
    if any(blob.HasField(name) for name in legacy):
        return tuple(int(getattr(blob, name)) for name in legacy)
    return tuple(int(dim) for dim in blob.shape.dim)


def blob_array(blob: Any, where: str = "blob") -> tuple[tuple[int, ...], Any]:
    """Shape and values (flat float32 array) of a BlobProto, from data or double_data.

    Raises ConfigError (naming `where`) where the number of values is not the shape's.
    """
    import numpy as np

    values = blob.double_data if len(blob.double_data) else blob.data
    shape, count = shape_of(blob), 1
    for dim in shape:
        count *= dim
    if count != len(values):
        raise ConfigError(f"{where}: {len(values)} values for shape {shape}, expected {count}")
    return shape, np.fromiter(values, np.float32, len(values))
