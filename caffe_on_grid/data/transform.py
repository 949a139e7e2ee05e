"""Caffe's transform_param, bit for bit (source: Caffe 1.0's DataTransformer). Pure.

y[c, h, w] = (x[c, top + h, left + w] − mean) · scale in float32, in that order, where a mean_file's mean is taken at
the source position; written mirrored along w where the sample is mirrored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
from google.protobuf.message import DecodeError

from caffe_on_grid.data.api import Array, Floats, TransformPlan
from caffe_on_grid.errors import ConfigError, DataError
from caffe_on_grid.proto import schema

Shape = tuple[int, int, int]

WORDS = 3
"""Random words kept for each sample: mirror, row offset, column offset."""
_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15


def plan(transform_message: Any, read_mean: Callable[[str], bytes], phase: str) -> TransformPlan:
    """The plan of a TransformationParameter message; `read_mean(path)` gives a mean_file's bytes.

    Raises ConfigError where both kinds of mean are given, or the mean file is not a BlobProto.
    """
    where = f"transform_param of the {phase} data layer"
    if transform_message.HasField("mean_file") and transform_message.mean_value:
        raise ConfigError(f"{where}: mean_file and mean_value exclude each other; remove one")
    return TransformPlan(
        scale=transform_message.scale,
        mirror=transform_message.mirror,
        crop=transform_message.crop_size,
        mean=_mean(transform_message, read_mean, where),
        force_color=transform_message.force_color,
        force_gray=transform_message.force_gray,
    )


def _mean(message: Any, read_mean: Callable[[str], bytes], where: str) -> Optional[Floats]:
    if message.HasField("mean_file"):
        return mean_blob(read_mean(message.mean_file), f"{where}: mean_file {message.mean_file!r}")
    if message.mean_value:
        return np.array(message.mean_value, np.float32).reshape(-1, 1, 1)
    return None


def mean_blob(data: bytes, where: str) -> Floats:
    """The float32 [C, H, W] mean in a BlobProto's bytes; missing trailing axes are 1, as Caffe reads them."""
    blob = schema.BlobProto()
    try:
        blob.ParseFromString(data)
    except DecodeError:
        raise ConfigError(f"{where} is not a BlobProto; make it with compute_image_mean") from None
    dims = ("num", "channels", "height", "width")
    old = any(map(blob.HasField, dims))
    shape = tuple(getattr(blob, dim) for dim in dims) if old else tuple(blob.shape.dim)
    with np.errstate(over="ignore"):
        values = np.array(blob.data or blob.double_data, np.float32)
    if not 0 < len(shape) <= 4 or min(shape) < 1 or values.size != math.prod(shape):
        raise ConfigError(f"{where} holds {values.size} values, which do not make its shape {shape}")
    mean: Floats = values.reshape((*shape, 1, 1, 1)[:4])[0]
    return mean


def check(shape: Shape, plan: TransformPlan) -> None:
    """Raises DataError where Caffe would refuse a record of [C, H, W] `shape`."""
    channels, height, width = shape
    if min(shape) < 1:
        raise DataError(f"shape {channels}×{height}×{width} is empty")
    if plan.crop > min(height, width):
        raise DataError(f"crop_size {plan.crop} is larger than the image, {height}×{width}")
    if plan.mean is not None:
        _check_mean(shape, plan.mean.shape)


def _check_mean(shape: Shape, mean: tuple[int, ...]) -> None:
    if mean[1:] == (1, 1):
        if mean[0] not in (1, shape[0]):
            raise DataError(f"{mean[0]} mean values for {shape[0]} channels; give one, or one for each channel")
    elif mean != shape:
        raise DataError(
            f"the mean file is {'×'.join(map(str, mean))} and the image {'×'.join(map(str, shape))}; they must be equal"
        )


def top_shape(record_shape: Shape, plan: TransformPlan) -> Shape:
    """[C, H, W] of one transformed record; raises DataError as `check` does."""
    check(record_shape, plan)
    channels, height, width = record_shape
    return (channels, plan.crop, plan.crop) if plan.crop else (channels, height, width)


def is_random(plan: TransformPlan, phase: str) -> bool:
    """Whether a sample's transform draws random numbers (a mirror draws in TEST too)."""
    return plan.mirror or (plan.crop > 0 and phase == "TRAIN")


def _mix(x: int) -> int:
    """SplitMix64's output function of a 64-bit state."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def draws(seed: int, position: int) -> tuple[int, ...]:
    """The random 32-bit words of the sample at a stream position.

    Word j is the upper half of output WORDS · position + j of SplitMix64 (Steele, Lea and Flood 2014) started at
    mix(seed), computed directly: the same for every world, rank and resumption.
    """
    state = _mix(seed & _MASK)
    counters = range(WORDS * position + 1, WORDS * position + 1 + WORDS)
    return tuple(_mix((state + counter * _GOLDEN) & _MASK) >> 32 for counter in counters)


def place(shape: Shape, plan: TransformPlan, phase: str, words: Sequence[int]) -> tuple[bool, int, int]:
    """(mirrored, top, left) of one sample: Caffe's order of draws and its `r % n`; TEST crops the centre."""
    word = iter(words)
    mirrored = plan.mirror and next(word) % 2 == 1
    if not plan.crop:
        return mirrored, 0, 0
    down, right = shape[1] - plan.crop, shape[2] - plan.crop
    if phase == "TRAIN":
        return mirrored, next(word) % (down + 1), next(word) % (right + 1)
    return mirrored, down // 2, right // 2


def apply(pixels: Array, plan: TransformPlan, phase: str, words: Sequence[int], out: Floats) -> None:
    """Write the transformed [C, H, W] `pixels` (uint8 or float32) into `out`, of `top_shape`.

    `words` are the sample's `draws`; none are needed unless `is_random`. The record must have passed `check`. Both may
    have leading axes (samples treated alike), and be one array where nothing is cropped or mirrored.
    """
    mirrored, top, left = place(pixels.shape[-3:], plan, phase, words)
    rows, columns = slice(top, top + out.shape[-2]), slice(left, left + out.shape[-1])
    target = out[..., ::-1] if mirrored else out
    scale = np.float32(plan.scale)
    if plan.mean is None:
        np.multiply(pixels[..., rows, columns], scale, out=target, dtype=np.float32)
        return
    mean = plan.mean if plan.mean.shape[1:] == (1, 1) else plan.mean[:, rows, columns]
    np.subtract(pixels[..., rows, columns], mean, out=target, dtype=np.float32)
    if scale != 1:
        np.multiply(target, scale, out=target)
