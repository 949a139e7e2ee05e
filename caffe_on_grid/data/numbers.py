"""MNIST's idx files and CIFAR-10's binary batches as keys and serialized Datum, as Caffe's converters make them."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from caffe_on_grid.data import datum
from caffe_on_grid.errors import ConfigError, DataError

Item = tuple[str, bytes]

IDX_IMAGES, IDX_LABELS = 2051, 2049
LARGEST_PIXELS = 1 << 28
"""Of one image; a file that says more is damaged."""
CIFAR_SHAPE = (3, 32, 32)


def _opened(path: Path) -> BinaryIO:
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name the files in it")
    if not path.is_file():
        raise ConfigError(f"no such file: {path}")
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def _exactly(file: BinaryIO, size: int, path: Path) -> bytes:
    try:
        data = file.read(size)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked: {error}") from error
    if len(data) != size:
        raise DataError(f"{path} ends too early: {size - len(data)} bytes are missing")
    return data


def _header(file: BinaryIO, magic: int, sizes: int, path: Path) -> tuple[int, ...]:
    """The `sizes` dimensions of an idx file."""
    found, *dims = struct.unpack(f">{1 + sizes}I", _exactly(file, 4 + 4 * sizes, path))
    if found != magic:
        raise DataError(f"{path} is not the idx file expected here: it starts with {found} instead of {magic}")
    return tuple(dims)


def mnist(images: Path, labels: Path) -> Iterator[Item]:
    """Records of an idx pair (convert_mnist_data): key `%08d`, one channel."""
    with _opened(images) as pixel_file, _opened(labels) as label_file:
        count, height, width = _header(pixel_file, IDX_IMAGES, 3, images)
        (label_count,) = _header(label_file, IDX_LABELS, 1, labels)
        if not 0 < height * width <= LARGEST_PIXELS:
            raise DataError(f"{images} is damaged: it says that its images are {height}×{width}")
        if count != label_count:
            raise DataError(f"{images} has {count} images, but {labels} has {label_count} labels")
        for number in range(count):
            pixels = np.frombuffer(_exactly(pixel_file, height * width, images), np.uint8).reshape(1, height, width)
            label = _exactly(label_file, 1, labels)[0]
            yield f"{number:08d}", datum.raw(pixels, label).SerializeToString()


def cifar10(batches: Sequence[Path]) -> Iterator[Item]:
    """Records of binary batches (convert_cifar_data): one label byte, then 3×32×32 RGB; key `%05d` over all batches."""
    size = 1 + int(np.prod(CIFAR_SHAPE))
    number = 0
    for path in batches:
        with _opened(path) as file:
            while first := file.read(1):
                row = first + _exactly(file, size - 1, path)
                pixels = np.frombuffer(row, np.uint8, offset=1).reshape(CIFAR_SHAPE)
                yield f"{number:05d}", datum.raw(pixels, row[0]).SerializeToString()
                number += 1
