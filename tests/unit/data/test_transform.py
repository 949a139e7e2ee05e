from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_on_grid.data import transform
from caffe_on_grid.data.api import TransformPlan
from caffe_on_grid.errors import ConfigError, DataError
from caffe_on_grid.proto import schema


def message(**fields):
    return schema.TransformationParameter(**fields)


def no_mean(path: str) -> bytes:
    raise AssertionError(f"{path} should not be read")


def blob(array: np.ndarray, **dims) -> bytes:
    made = schema.BlobProto(**dims)
    made.data.extend(array.ravel().tolist())
    return made.SerializeToString()


def transformed(pixels, plan, phase="TRAIN", words=()):
    out = np.empty(transform.top_shape(pixels.shape, plan), np.float32)
    transform.apply(pixels, plan, phase, words, out)
    return out


def by_loops(pixels, plan, mirrored, top, left):
    """DataTransformer::Transform's own loop."""
    channels, height, width = transform.top_shape(pixels.shape, plan)
    out = np.empty((channels, height, width), np.float32)
    for c, h, w in itertools.product(range(channels), range(height), range(width)):
        value = np.float32(pixels[c, top + h, left + w])
        if plan.mean is not None:
            per_pixel = plan.mean.shape[1:] != (1, 1)
            value = value - (plan.mean[c, top + h, left + w] if per_pixel else plan.mean[c % len(plan.mean), 0, 0])
        out[c, h, width - 1 - w if mirrored else w] = value * np.float32(plan.scale)
    return out


PIXELS = np.random.RandomState(3).randint(0, 256, (3, 5, 7)).astype(np.uint8)
MEANS = {
    "none": None,
    "one": np.full((1, 1, 1), 0.1, np.float32),
    "each": np.array([103.939, 116.779, 123.68], np.float32).reshape(3, 1, 1),
    "file": np.random.RandomState(4).uniform(0, 255, (3, 5, 7)).astype(np.float32),
}


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("pixels", [PIXELS, PIXELS.astype(np.float32) / 3], ids=["bytes", "floats"])
@pytest.mark.parametrize("crop", [0, 4])
@pytest.mark.parametrize("mirror", [False, True])
def test_equals_caffes_loop_bit_for_bit(pixels, mean, crop, mirror):
    plan = TransformPlan(scale=0.00390625 * 1.1, mirror=mirror, crop=crop, mean=MEANS[mean])
    for words in ((1, 1, 2), (4, 3, 7), (7, 0, 9)):
        where = transform.place(pixels.shape, plan, "TRAIN", words)
        assert np.array_equal(transformed(pixels, plan, "TRAIN", words), by_loops(pixels, plan, *where))


def test_draws_are_used_in_caffes_order():
    plan = TransformPlan(mirror=True, crop=4)
    assert transform.place((3, 5, 7), plan, "TRAIN", (3, 5, 6)) == (True, 1, 2)
    assert transform.place((3, 5, 7), TransformPlan(crop=4), "TRAIN", (3, 5)) == (False, 1, 1)
    assert transform.place((3, 5, 7), plan, "TEST", (2,)) == (False, 0, 1)
    assert transform.place((3, 5, 7), plan, "TEST", (1,)) == (True, 0, 1)


@pytest.mark.parametrize(
    ("plan", "phase", "random"),
    [
        (TransformPlan(), "TRAIN", False),
        (TransformPlan(crop=4), "TEST", False),
        (TransformPlan(crop=4), "TRAIN", True),
        (TransformPlan(mirror=True), "TEST", True),
    ],
)
def test_what_draws_numbers(plan, phase, random):
    assert transform.is_random(plan, phase) is random


def test_draws_are_splitmix64_addressed_by_position():
    # SplitMix64 started at 0 gives 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, …; mix(0) is 0.
    first = (0xE220A839, 0x6E789E6A, 0x06C45D18)
    assert transform.draws(0, 0) == first
    assert transform.draws(0, 1)[0] == 0xF88BB8A8


@given(seed=st.integers(-(2**63), 2**64), position=st.integers(0, 2**50))
def test_draws_fit_32_bits_and_depend_on_everything(seed, position):
    words = transform.draws(seed, position)
    assert all(0 <= word < 2**32 for word in words)
    assert words != transform.draws(seed, position + 1)
    assert words != transform.draws(seed + 1, position)


def test_draws_are_even():
    mirrored = sum(transform.draws(1, position)[0] % 2 for position in range(4000))
    offsets = np.bincount([transform.draws(1, position)[1] % 5 for position in range(4000)])
    assert 1850 < mirrored < 2150
    assert (abs(offsets - 800) < 120).all()


def test_plan_of_a_message():
    plan = transform.plan(message(scale=0.5, mirror=True, crop_size=3, mean_value=[1, 2, 3]), no_mean, "TRAIN")
    assert (plan.scale, plan.mirror, plan.crop) == (0.5, True, 3)
    assert plan.mean.shape == (3, 1, 1)
    assert transform.plan(message(), no_mean, "TEST") == TransformPlan()


@pytest.mark.parametrize(
    "dims",
    [
        {"num": 1, "channels": 3, "height": 5, "width": 7},
        {"shape": schema.BlobShape(dim=[1, 3, 5, 7])},
    ],
    ids=["old", "new"],
)
def test_mean_file_in_both_forms(dims):
    read = {"m.binaryproto": blob(MEANS["file"], **dims)}.__getitem__
    plan = transform.plan(message(mean_file="m.binaryproto"), read, "TRAIN")
    assert np.array_equal(plan.mean, MEANS["file"])


def test_mean_file_of_doubles():
    made = schema.BlobProto(num=1, channels=1, height=1, width=2)
    made.double_data.extend([0.1, 7])
    assert transform.mean_blob(made.SerializeToString(), "m").tolist() == [[[np.float32(0.1), 7]]]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xff", "not a BlobProto"),
        (b"", "0 values"),
        (blob(np.zeros(4), num=1, channels=3, height=5, width=7), "4 values"),
    ],
)
def test_bad_mean_files(data, says):
    with pytest.raises(ConfigError, match=says):
        transform.plan(message(mean_file="m"), lambda path: data, "TRAIN")


def test_both_means_are_refused():
    with pytest.raises(ConfigError, match="exclude each other"):
        transform.plan(message(mean_file="m", mean_value=[1]), no_mean, "TRAIN")


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (TransformPlan(crop=6), "crop_size 6 is larger"),
        (TransformPlan(mean=np.zeros((2, 1, 1), np.float32)), "2 mean values for 3 channels"),
        (TransformPlan(mean=np.zeros((3, 7, 5), np.float32)), "3×7×5 and the image 3×5×7"),
    ],
)
def test_what_does_not_fit_is_refused(plan, says):
    with pytest.raises(DataError, match=says):
        transform.top_shape((3, 5, 7), plan)
