"""A model's parameters in the order and the shapes of a net's layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import numpy as np

from caffe_on_grid.engine import weights
from caffe_on_grid.engine.api import Array
from caffe_on_grid.engine.torch import hdf5
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto.shapes_base import NetShapes

Parameters = dict[str, list[Array]]
"""Layer → its blobs (float32, in the net's shapes)."""


class _Place:
    """Where one blob goes."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.values: Optional[Array] = None


def read(path: Path, net: Any, known: NetShapes) -> Parameters:
    """The blobs that the .caffemodel, or .caffemodel.h5, has for the net's layers, which need all of them.

    Raises ConfigError where the file cannot be read, a blob does not fit, or a layer's blobs are not in it.
    """
    places = {layer.name: [_Place(shape) for shape in layer.param_shapes] for layer in known.layers}
    if path.suffix == ".h5":
        owners = _owners(net, known)
        hdf5.read_model(path, places, set(owners), _assign)
        for sharer, owner in owners.items():
            _place(places, sharer).values = _shared(_place(places, owner).values, _place(places, sharer).shape)
    else:
        weights.copy(places, weights.read(path), f"weights {path}", _assign)
    missing = [name for name, held in places.items() if any(place.values is None for place in held)]
    if missing:
        raise ConfigError(f"weights {path}: no parameters for {', '.join(missing)}: is it a model of this net?")
    return {name: [np.asarray(place.values) for place in held] for name, held in places.items() if held}


def _owners(net: Any, known: NetShapes) -> dict[str, str]:
    """`layer/index` of each parameter that is shared by name → that of its owner, which alone an HDF5 file holds."""
    counts = {layer.name: len(layer.param_shapes) for layer in known.layers}
    first: dict[str, str] = {}
    found = {}
    for layer in net.layer:
        for at, spec in enumerate(layer.param[: counts[layer.name]]):
            own = f"{layer.name}/{at}"
            owner = first.setdefault(spec.name, own) if spec.name else own
            if owner != own:
                found[own] = owner
    return found


def _place(places: dict[str, list[_Place]], key: str) -> _Place:
    name, at = key.rsplit("/", 1)
    return places[name][int(at)]


def _shared(values: Optional[Array], shape: tuple[int, ...]) -> Optional[Array]:
    return None if values is None else values.reshape(shape)


def _assign(place: Any, values: Array) -> None:
    place.values = np.array(values, np.float32)
