"""What models, snapshots, means and LMDBs hold, as JSON values and as lines. Needs no Caffe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from caffe_on_grid.data import lmdb_source
from caffe_on_grid.engine.torch import hdf5
from caffe_on_grid.errors import ConfigError, DataError
from caffe_on_grid.proto import schema, weights

SAMPLE = 1000
"""Records, evenly spaced, whose labels are counted."""

Found = dict[str, Any]


def model(path: Path) -> Found:
    """A .caffemodel: layers with blobs, their shapes, counts and values."""
    content = _bytes(path)
    if not content:
        raise ConfigError(f"{path}: not a .caffemodel: it is empty")
    read = weights.read_model(content, str(path))
    layers = [
        _layer(entry.name, entry.type, [_blob(b, f"{path}: {entry.name}") for b in entry.blobs]) for entry in read.layer
    ]
    return _model(path, read.name, layers)


def model_hdf5(path: Path) -> Found:
    """A .caffemodel.h5; raises EnvironmentFault where this Python has no h5py."""
    layers = [_layer(name, "", [_values(blob) for blob in blobs]) for name, blobs in hdf5.stored_layers(path).items()]
    return _model(path, "", layers)


def _model(path: Path, name: str, layers: list[Found]) -> Found:
    total = sum(layer["parameters"] for layer in layers)
    return {
        "kind": "model",
        "path": str(path),
        "bytes": path.stat().st_size,
        "name": name,
        "layers": layers,
        "parameters": total,
    }


def _layer(name: str, kind: str, blobs: list[Found]) -> Found:
    return {"name": name, "type": kind, "blobs": blobs, "parameters": sum(blob["count"] for blob in blobs)}


def _blob(blob: Any, where: str) -> Found:
    shape, values = weights.blob_array(blob, where)
    return _values(values.reshape(shape))


def _values(values: Any) -> Found:
    known = values.size > 0
    low, high, mean = (float(f(values)) if known else None for f in (np.min, np.max, _mean))
    return {"shape": list(values.shape), "count": int(values.size), "min": low, "max": high, "mean": mean}


def _mean(values: Any) -> Any:
    with np.errstate(invalid="ignore"):  # infinities of both signs
        return np.mean(values, dtype=np.float64)


def model_lines(found: Found) -> Iterator[str]:
    """A table of the layers with parameters, then the totals."""
    for layer in found["layers"]:
        for index, blob in enumerate(layer["blobs"]):
            title = f"{layer['name']} ({layer['type']})" if index == 0 else ""
            yield f"{title:<40} {_shape(blob['shape']):<20} {_spread(blob)}"
    bare = sum(not layer["blobs"] for layer in found["layers"])
    totals = f"{found['parameters']:,} parameters, {found['bytes']:,} bytes"
    yield f"model {found['name']!r}: {totals}, {bare} layers without parameters"


def state(path: Path) -> Found:
    """A .solverstate: iteration, the model it names, its history."""
    read = weights.read_state(_bytes(path), str(path))
    return {
        "kind": "state",
        "path": str(path),
        "bytes": path.stat().st_size,
        "iteration": read.iter,
        "learned_net": read.learned_net,
        "current_step": read.current_step,
        "history": [list(weights.shape_of(blob)) for blob in read.history],
    }


def state_lines(found: Found) -> Iterator[str]:
    """One line for each field."""
    yield f"iteration {found['iteration']}, learning rate step {found['current_step']}"
    yield f"model: {found['learned_net']}"
    yield f"history: {len(found['history'])} blobs: {', '.join(map(_shape, found['history']))}"


def mean(path: Path) -> Found:
    """A .binaryproto: one blob, with the mean of each channel."""
    blob = _message(schema.BlobProto, path, "BlobProto")
    shape, values = weights.blob_array(blob, str(path))
    array = values.reshape((1,) * max(0, 3 - len(shape)) + shape)
    planes = array.swapaxes(0, 1) if array.ndim == 4 and array.size else ()
    channels = [float(_mean(plane)) for plane in planes]
    return {"kind": "mean", "path": str(path), **_values(values.reshape(shape)), "channel_means": channels}


def mean_lines(found: Found) -> Iterator[str]:
    """Shape and values."""
    yield f"blob {_shape(found['shape'])}: {_spread(found)}"
    if found["channel_means"]:
        yield f"mean of each channel: {', '.join(f'{value:.6g}' for value in found['channel_means'])}"


def records(path: Path, first: int) -> Found:
    """An LMDB: its size, its first records, and the labels of up to SAMPLE records spread over it."""
    source = lmdb_source.open(str(path))
    try:
        shown = [_record(source, at) for at in range(min(first, len(source)))]
        step = max(1, -(-len(source) // SAMPLE))
        labels = Counter(_datum(source, at).label for at in range(0, len(source), step))
        return {
            "kind": "lmdb",
            "path": str(path),
            "bytes": (path / "data.mdb").stat().st_size,
            "records": len(source),
            "first": shown,
            "sampled": sum(labels.values()),
            "labels": {str(label): count for label, count in sorted(labels.items())},
        }
    finally:
        source.close()


def _datum(source: lmdb_source.LmdbSource, at: int) -> Any:
    try:
        return schema.Datum.FromString(source.datum(at))
    except DecodeError as error:
        raise DataError(f"record {source.key(at)!r} of {source.path} is no Datum: {error}") from None


def _record(source: lmdb_source.LmdbSource, at: int) -> Found:
    datum, record = _datum(source, at), source.read(at)
    kind = str(record.pixels.dtype)
    return {
        "key": record.key,
        "shape": list(record.pixels.shape),
        "type": kind,
        "label": record.label,
        "encoded": bool(datum.encoded),
    }


def records_lines(found: Found) -> Iterator[str]:
    """The size, the first records, the labels."""
    yield f"LMDB of {found['records']:,} records, {found['bytes']:,} bytes"
    for record in found["first"]:
        stored = "encoded" if record["encoded"] else "raw"
        yield f"  {record['key']}: {_shape(record['shape'])} {record['type']}, label {record['label']}, {stored}"
    counts = ", ".join(f"{label}: {count}" for label, count in list(found["labels"].items())[:50])
    more = f", … ({len(found['labels'])} labels)" if len(found["labels"]) > 50 else ""
    yield f"labels of {found['sampled']:,} records spread over it: {counts}{more}"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _message(cls: Any, path: Path, what: str) -> Any:
    try:
        return cls.FromString(_bytes(path))
    except DecodeError as error:
        raise ConfigError(f"{path}: not a {what}: {error}") from None


def _shape(shape: list[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _spread(blob: Found) -> str:
    if not blob["count"]:
        return "no values"
    return f"{blob['count']:>12,}  min {blob['min']:.5g}  max {blob['max']:.5g}  mean {blob['mean']:.5g}"
