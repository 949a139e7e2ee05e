"""V0 layers (`layers { layer { name type: "conv" … } … }`) as V1 layers, padding layers folded into what they feed."""

from __future__ import annotations

from typing import Any, Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema

V0_TYPES: dict[str, str] = {
    **{name: name.upper() for name in ("accuracy", "bnll", "concat", "data", "dropout", "euclidean_loss", "flatten")},
    **{
        name: name.upper() for name in ("hdf5_data", "hdf5_output", "im2col", "infogain_loss", "lrn", "relu", "sigmoid")
    },
    **{name: name.upper() for name in ("multinomial_logistic_loss", "softmax", "softmax_loss", "split", "tanh")},
    "conv": "CONVOLUTION",
    "images": "IMAGE_DATA",
    "innerproduct": "INNER_PRODUCT",
    "pool": "POOLING",
    "window_data": "WINDOW_DATA",
}
"""V0 type names → names in V1LayerParameter.LayerType."""

_CONV, _POOL, _IP, _LRN = "convolution_param", "pooling_param", "inner_product_param", "lrn_param"
_DATA, _IMAGES, _WINDOW = "data_param", "image_data_param", "window_data_param"
_WEIGHTED = {"conv": (_CONV, ""), "innerproduct": (_IP, "")}
_SOURCES = {
    "data": (_DATA, ""),
    "hdf5_data": ("hdf5_data_param", ""),
    "images": (_IMAGES, ""),
    "window_data": (_WINDOW, ""),
}


def _only(kind: str, param: str, name: str = "") -> dict[str, tuple[str, str]]:
    return {kind: (param, name)}


def _named(places: dict[str, tuple[str, str]], name: str) -> dict[str, tuple[str, str]]:
    return {kind: (param, name) for kind, (param, _) in places.items()}


PLACES: dict[str, dict[str, tuple[str, str]]] = {
    "num_output": _WEIGHTED,
    "biasterm": _named(_WEIGHTED, "bias_term"),
    "weight_filler": _WEIGHTED,
    "bias_filler": _WEIGHTED,
    "pad": {"conv": (_CONV, ""), "pool": (_POOL, "")},
    "kernelsize": {"conv": (_CONV, "kernel_size"), "pool": (_POOL, "kernel_size")},
    "group": _only("conv", _CONV),
    "stride": {"conv": (_CONV, ""), "pool": (_POOL, "")},
    "pool": _only("pool", _POOL),
    "dropout_ratio": _only("dropout", "dropout_param"),
    "local_size": _only("lrn", _LRN),
    "alpha": _only("lrn", _LRN),
    "beta": _only("lrn", _LRN),
    "k": _only("lrn", _LRN),
    "source": {**_SOURCES, "infogain_loss": ("infogain_loss_param", "")},
    "scale": {"": ("transform_param", "")},
    "meanfile": {"": ("transform_param", "mean_file")},
    "batchsize": _named(_SOURCES, "batch_size"),
    "cropsize": {"": ("transform_param", "crop_size")},
    "mirror": {"": ("transform_param", "")},
    "rand_skip": {"data": (_DATA, ""), "images": (_IMAGES, "")},
    "shuffle_images": _only("images", _IMAGES, "shuffle"),
    "new_height": _only("images", _IMAGES),
    "new_width": _only("images", _IMAGES),
    "concat_dim": _only("concat", "concat_param"),
    **{
        f"det_{name}": _only("window_data", _WINDOW, name)
        for name in ("fg_threshold", "bg_threshold", "fg_fraction", "context_pad", "crop_mode")
    },
    "hdf5_output_param": {"hdf5_output": ("", "hdf5_output_param")},
}
"""V0 field → layer type ("": any) → (V1 parameter message ("": the layer itself), its field ("": of the same name))."""


def to_v1(net: Any, where: str) -> Any:
    """A new net of V1 layers; raises ConfigError for an unknown type.

    As in Caffe a field that the layer's type does not have is left out, and only name, inputs and force_backward are
    kept beside the layers.
    """
    upgraded = schema.NetParameter(input=net.input, input_dim=net.input_dim)
    for name in ("name", "force_backward"):
        if net.HasField(name):
            setattr(upgraded, name, getattr(net, name))
    for layer in _without_padding(net, where):
        _layer_to_v1(layer, upgraded.layers.add(), where)
    return upgraded


def left_out(net: Any) -> list[str]:
    """What `to_v1` leaves out of a net, for each layer whose type has no such fields, in words; none for other nets."""
    found = []
    for layer in net.layers:
        names = [field.name for field, _ in layer.layer.ListFields() if field.name in PLACES]
        lost = [name for name in names if layer.layer.type != "padding" and _home(layer.layer.type, name) is None]
        if lost:
            found.append(f"layer {layer.layer.name!r}: type {layer.layer.type!r} has no {', '.join(lost)}")
    return found


def _home(kind: str, name: str) -> Optional[tuple[str, str]]:
    """Where V1 has field `name` of a layer of type `kind`."""
    places = PLACES.get(name, {})
    return places.get(kind, places.get(""))


def _without_padding(net: Any, where: str) -> list[Any]:
    """Copies of all layers but the padding ones, whose pad goes to the conv or pool layer that they feed."""
    kept: list[Any] = []
    producers: dict[str, Any] = dict.fromkeys(net.input)
    for layer in net.layers:
        copied = schema.V1LayerParameter()
        copied.CopyFrom(layer)
        for index, blob in enumerate(layer.bottom):
            if blob not in producers:
                raise ConfigError(f"{where}: unknown bottom blob {blob!r} of layer {layer.layer.name!r}")
            if producers[blob] is not None and producers[blob].layer.type == "padding":
                _fold(copied, index, producers[blob], where)
        producers.update(dict.fromkeys(layer.top, layer))
        if layer.layer.type != "padding":
            kept.append(copied)
    return kept


def _fold(layer: Any, index: int, padding: Any, where: str) -> None:
    single = len(layer.bottom) == len(padding.bottom) == len(padding.top) == 1
    if layer.layer.type not in ("conv", "pool") or not single:
        raise ConfigError(
            f"{where}: padding layer {padding.layer.name!r} feeds {layer.layer.name!r}: "
            "expected one conv or pool layer with that one bottom"
        )
    layer.layer.pad = padding.layer.pad
    layer.bottom[index] = padding.bottom[0]


def _layer_to_v1(old: Any, new: Any, where: str) -> None:
    new.bottom.extend(old.bottom)
    new.top.extend(old.top)
    if not old.HasField("layer"):
        return
    v0 = old.layer
    if v0.HasField("type"):
        if v0.type not in V0_TYPES:
            raise ConfigError(f"{where}: layer {v0.name!r}: unknown old-style type {v0.type!r}")
        new.type = schema.ENUMS["V1LayerParameter.LayerType"][V0_TYPES[v0.type]]
    for field, value in v0.ListFields():
        if field.name == "name":
            new.name = value
        elif field.name in ("blobs", "blobs_lr", "weight_decay"):
            getattr(new, field.name).MergeFrom(value)
        elif field.name != "type":
            _place(new, v0, field.name, value)


def _place(new: Any, v0: Any, name: str, value: Any) -> None:
    place = _home(v0.type, name)
    if place is not None:
        _put(getattr(new, place[0]) if place[0] else new, place[1] or name, value)


def _put(owner: Any, field: str, value: Any) -> None:
    present = getattr(owner, field)
    if hasattr(value, "CopyFrom"):
        present.CopyFrom(value)
    elif hasattr(present, "append"):
        present.append(value)
    else:
        setattr(owner, field, value)
