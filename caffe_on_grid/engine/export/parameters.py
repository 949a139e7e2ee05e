"""A model's parameters in the order and the shapes of a net's layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import numpy as np

from caffe_on_grid.engine import weights
from caffe_on_grid.engine.api import Array
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto.shapes_base import NetShapes

Parameters = dict[str, list[Array]]
"""Layer → its blobs (float32, in the net's shapes)."""


class _Place:
    """Where one blob goes."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.values: Optional[Array] = None


def read(path: Path, known: NetShapes) -> Parameters:
    """The blobs that the .caffemodel has for the net's layers, which need all of them.

    Raises ConfigError where the file cannot be read, a blob does not fit, or a layer's blobs are not in it.
    """
    places = {layer.name: [_Place(shape) for shape in layer.param_shapes] for layer in known.layers}
    weights.copy(places, weights.read(path), f"weights {path}", _assign)
    missing = [name for name, held in places.items() if any(place.values is None for place in held)]
    if missing:
        raise ConfigError(f"weights {path}: no parameters for {', '.join(missing)}: is it a model of this net?")
    return {name: [np.asarray(place.values) for place in held] for name, held in places.items() if held}


def _assign(place: Any, values: Array) -> None:
    place.values = np.array(values, np.float32)
