"""Caffe's binary files: .caffemodel and .solverstate, written byte for byte as Caffe writes them.

Reading is `engine.weights`. The numbers go from the blobs' memory to the file without a protobuf message in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np

from caffe_on_grid.engine.api import Floats
from caffe_on_grid.engine.weights import LARGEST
from caffe_on_grid.errors import TrainingFailed
from caffe_on_grid.proto import schema, wire

Chunk = Union[bytes, memoryview]
_LAYER, _NET_LAYER, _HISTORY, _DATA = 7, 100, 3, 5
"""Field numbers: LayerParameter.blobs, NetParameter.layer, SolverState.history, BlobProto.data."""


def write_model(path: Path, net: Any, blobs: Sequence[Sequence[Floats]]) -> None:
    """Write `net` (NetParameter as built, splits included) with each layer's blobs as a .caffemodel.

    Raises TrainingFailed above protobuf's 2 GiB.
    """
    chunks: list[Chunk] = [schema.NetParameter(name=net.name).SerializeToString()] if net.HasField("name") else []
    for layer, held in zip(net.layer, blobs):
        chunks += _span(_NET_LAYER, list(_layer_chunks(layer, held)))
    _write(path, chunks)


def write_state(path: Path, iteration: int, model: str, current_step: int, history: Sequence[Floats]) -> None:
    """Write a .solverstate that names `model`; raises TrainingFailed above protobuf's 2 GiB."""
    chunks: list[Chunk] = [schema.SolverState(iter=iteration, learned_net=model).SerializeToString()]
    for blob in history:
        chunks += _span(_HISTORY, _blob_chunks(blob))
    _write(path, [*chunks, schema.SolverState(current_step=current_step).SerializeToString()])


def _layer_chunks(layer: Any, blobs: Sequence[Floats]) -> Iterator[Chunk]:
    """A LayerParameter: the fields before its blobs, the blobs, the fields after them."""
    parts = (schema.LayerParameter(), schema.LayerParameter())
    for part, after in zip(parts, (False, True)):
        part.CopyFrom(layer)
        for field, _ in layer.ListFields():
            if field.number == _LAYER or (field.number > _LAYER) is not after:
                part.ClearField(field.name)
    yield parts[0].SerializeToString()
    for blob in blobs:
        yield from _span(_LAYER, _blob_chunks(blob))
    yield parts[1].SerializeToString()


def _blob_chunks(blob: Floats) -> list[Chunk]:
    """A BlobProto: the numbers, packed, and the shape."""
    values = np.ascontiguousarray(blob, "<f4")
    packed: Chunk = values.reshape(-1).view(np.uint8).data if values.size else b""
    shape = schema.BlobProto(
        shape=schema.BlobShape(dim=blob.shape) if blob.ndim else None
    )  # as there: no axes, no shape
    return [*(_span(_DATA, [packed]) if values.size else ()), shape.SerializeToString()]


def _span(number: int, chunks: list[Chunk]) -> list[Chunk]:
    return [wire.span_head(number, sum(map(len, chunks))), *chunks]


def _write(path: Path, chunks: Sequence[Chunk]) -> None:
    total = sum(map(len, chunks))
    if total > LARGEST:
        raise TrainingFailed(f"{path}: {total} bytes, a binary one has at most 2 GiB: set snapshot_format: HDF5 (.h5)")
    with path.open("wb") as file:
        file.writelines(chunks)
