"""Caffe's Datum message to a record and back: raw bytes, float_data, or an encoded image."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from caffe_on_grid.data.api import Array, Record
from caffe_on_grid.errors import DataError
from caffe_on_grid.proto import schema

LARGEST_PIXELS = 1 << 28
"""Of an encoded image; one that says more is damaged, or meant to use up the memory."""


class Decoder:
    """Datum bytes → Record, with Caffe's rules for encoded images (`force_color`, `force_gray`, else as stored)."""

    def __init__(self, force_color: bool = False, force_gray: bool = False) -> None:
        self._color = force_color
        self._gray = force_gray

    def record(self, key: str, value: bytes) -> Record:
        """The record in `value`; raises DataError saying what is wrong with it (without the key)."""
        try:
            datum = schema.Datum.FromString(value)
        except DecodeError:
            raise DataError(f"{len(value)} bytes that are not a Datum") from None
        pixels = self._image(datum.data) if datum.encoded else _raw(datum)
        return Record(key, pixels, datum.label)

    def _image(self, data: bytes) -> Array:
        """[C, H, W] uint8, BGR, of a jpeg, png, …; OpenCV decodes it, as in Caffe (IO.cpp, DecodeDatumToCVMat)."""
        if self._color and self._gray:
            raise DataError("transform_param sets both force_color and force_gray; remove one")
        os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(LARGEST_PIXELS))  # read when it is loaded
        import cv2  # heavy, and only encoded records need it

        flag = cv2.IMREAD_COLOR if self._color else cv2.IMREAD_GRAYSCALE if self._gray else cv2.IMREAD_UNCHANGED
        image = None
        with contextlib.suppress(cv2.error):  # sizes that it does not believe
            image = cv2.imdecode(np.frombuffer(data, np.uint8), flag) if data else None
        if image is None:
            raise DataError(f"an encoded image of {len(data)} bytes that cannot be decoded")
        if image.dtype != np.uint8:
            raise DataError(f"an encoded image of {image.dtype} values; only 8 bits for each channel are supported")
        return np.asarray(image[None] if image.ndim == 2 else image.transpose(2, 0, 1))


def _raw(datum: Any) -> Array:
    """[C, H, W] of `data` (uint8), or of `float_data` where that is empty."""
    shape = (datum.channels, datum.height, datum.width)
    pixels: Array = np.frombuffer(datum.data, np.uint8) if datum.data else np.array(datum.float_data, np.float32)
    if min(shape) < 1 or pixels.size != shape[0] * shape[1] * shape[2]:
        raise DataError(f"{pixels.size} values for a shape of {shape[0]}×{shape[1]}×{shape[2]}")
    return pixels.reshape(shape)


def raw(pixels: Array, label: int) -> Any:
    """The Datum of uint8 [C, H, W] pixels."""
    channels, height, width = pixels.shape
    return schema.Datum(channels=channels, height=height, width=width, data=pixels.tobytes(), label=label)
