"""Small LMDBs of Datum for tests; runs in both Pythons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import cv2
import numpy as np

from caffe_on_grid.data.lmdb_source import LmdbWriter
from caffe_on_grid.proto import schema


def write(path: Path, values: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> str:
    """An LMDB with these values by key."""
    writer = LmdbWriter(str(path), 1 << 20)
    for key, value in values.items() if isinstance(values, Mapping) else values:
        writer.put(key.encode(), value)
    writer.close()
    return str(path)


def pixels(seed: int, channels: int, height: int, width: int) -> np.ndarray:
    """Smooth random uint8 [C, H, W], so that jpeg keeps something of it."""
    coarse = np.random.RandomState(seed).randint(0, 256, (height // 4 + 1, width // 4 + 1, channels)).astype(np.uint8)
    image = cv2.resize(coarse, (width, height))
    return image.reshape(height, width, channels).transpose(2, 0, 1)


def raw(image: np.ndarray, label: int) -> bytes:
    """A Datum of raw bytes."""
    channels, height, width = image.shape
    datum = schema.Datum(channels=channels, height=height, width=width, label=label, data=image.tobytes())
    return datum.SerializeToString()


def floats(image: np.ndarray, label: int) -> bytes:
    """A Datum of float_data."""
    channels, height, width = image.shape
    datum = schema.Datum(channels=channels, height=height, width=width, label=label)
    datum.float_data.extend(image.astype(np.float32).ravel().tolist())
    return datum.SerializeToString()


def encoded(image: np.ndarray, label: int, kind: str) -> bytes:
    """A Datum of an image file ("png", "jpg")."""
    data = cv2.imencode(f".{kind}", np.ascontiguousarray(image.transpose(1, 2, 0)))[1].tobytes()
    return schema.Datum(data=data, label=label, encoded=True).SerializeToString()


def counted(path: Path, count: int, shape: tuple[int, int, int] = (1, 2, 3)) -> str:
    """An LMDB of `count` records whose label is their index and whose pixels are all index mod 256."""
    values = ((f"{i:08d}", raw(np.full(shape, i % 256, np.uint8), i)) for i in range(count))
    return write(path, values)
