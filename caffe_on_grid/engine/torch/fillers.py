"""Caffe's weight fillers, equal bit for bit to Caffe on a CPU (`caffe/filler.hpp`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from caffe_on_grid.engine.api import Floats
from caffe_on_grid.engine.torch.random import Stream
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema
from caffe_on_grid.spec.codec import suggestion

Shape = Sequence[int]
_NORMS = schema.ENUMS["FillerParameter.VarianceNorm"]


def fill(filler: Any, shape: Shape, stream: Stream) -> Floats:
    """A new blob of `shape`, filled as the FillerParameter says; raises ConfigError for what Caffe refuses."""
    kind, count = filler.type, math.prod(shape)
    if kind not in _FILLERS:
        raise ConfigError(f"unknown filler type {kind!r}{suggestion(kind, _FILLERS)}; known: {', '.join(_FILLERS)}")
    if count == 0:
        raise ConfigError(f"filler {kind!r}: the blob of shape {tuple(shape)} has no values")
    if filler.sparse >= 0 and kind != "gaussian":
        raise ConfigError(f"filler {kind!r}: sparse is not supported by this filler; known to: gaussian")
    return _FILLERS[kind](filler, shape, count, stream).reshape(tuple(shape))


def _constant(filler: Any, shape: Shape, count: int, stream: Stream) -> Floats:
    return np.full(count, filler.value, np.float32)


def _uniform(filler: Any, shape: Shape, count: int, stream: Stream) -> Floats:
    if filler.min > filler.max:
        raise ConfigError(f"filler 'uniform': min is {filler.min:g}, expected at most max ({filler.max:g})")
    return stream.uniform(count, filler.min, filler.max)


def _gaussian(filler: Any, shape: Shape, count: int, stream: Stream) -> Floats:
    if not filler.std > 0:
        raise ConfigError(f"filler 'gaussian': std is {filler.std:g}, expected > 0")
    if filler.sparse < -1:
        raise ConfigError(f"filler 'gaussian': sparse is {filler.sparse}, expected -1 (none) or more")
    values = stream.gaussian(count, filler.mean, filler.std)
    if filler.sparse >= 0:
        if not shape:
            raise ConfigError("filler 'gaussian': sparse needs a blob with at least one axis")
        values *= stream.bernoulli_single(count, np.float32(filler.sparse) / np.float32(shape[0]))
    return values


def _unit_ball(filler: Any, shape: Shape, count: int, stream: Stream) -> Floats:
    rows = stream.uniform(count, 0, 1).reshape(_rows(shape, "positive_unitball"), -1)
    rows /= np.add.accumulate(rows, axis=1)[:, -1:]  # summed one by one, as the loop there does
    return rows


def _xavier(filler: Any, shape: Shape, count: int, stream: Stream) -> Floats:
    scale = np.sqrt(np.float32(3) / _fan(filler, shape, count))
    return stream.uniform(count, -scale, scale)


def _msra(filler: Any, shape: Shape, count: int, stream: Stream) -> Floats:
    return stream.gaussian(count, 0, np.sqrt(np.float32(2) / _fan(filler, shape, count)))


def _bilinear(filler: Any, shape: Shape, count: int, stream: Stream) -> Floats:
    if len(shape) != 4 or shape[2] != shape[3]:
        raise ConfigError(f"filler 'bilinear': the shape is {tuple(shape)}, expected four axes and a square kernel")
    size = shape[3]
    half = np.float32(math.ceil(size / 2))
    centre = np.float32((size - 1) / (2 * float(half)))
    line = np.float32(1) - np.abs(np.arange(size, dtype=np.float32) / half - centre)
    return np.array(np.broadcast_to(np.outer(line, line), tuple(shape)))


def _fan(filler: Any, shape: Shape, count: int) -> np.float32:
    """How many values meet in one, by variance_norm."""
    into = count // _rows(shape, filler.type)
    out = count // shape[1] if len(shape) > 1 else count
    norms = {"FAN_IN": np.float32(into), "FAN_OUT": np.float32(out), "AVERAGE": np.float32(into + out) / np.float32(2)}
    return next(value for name, value in norms.items() if _NORMS[name] == filler.variance_norm)


def _rows(shape: Shape, kind: str) -> int:
    """Caffe's num(): the first axis; 1 without axes."""
    if len(shape) > 4 and kind == "positive_unitball":
        raise ConfigError(f"filler {kind!r}: the shape is {tuple(shape)}, expected at most four axes")
    return shape[0] if shape else 1


_FILLERS: dict[str, Callable[[Any, Shape, int, Stream], Floats]] = {
    "constant": _constant,
    "gaussian": _gaussian,
    "positive_unitball": _unit_ball,
    "uniform": _uniform,
    "xavier": _xavier,
    "msra": _msra,
    "bilinear": _bilinear,
}
