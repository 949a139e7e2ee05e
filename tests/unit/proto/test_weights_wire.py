"""Blobs as they stand on the wire: packed or not, whole or broken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, weights, wire


def layer_of(blob: bytes) -> bytes:
    body = b"\x0a\x01c" + wire.span_head(7, len(blob)) + blob
    return wire.span_head(100, len(body)) + body


def test_numbers_one_by_one_and_in_parts() -> None:
    """Unpacked, packed twice, and other fields in between."""
    shape = b"\x3a\x03\x0a\x01\x05"
    blob = b"\x2d\x00\x00\x80\x3f\x2d\x00\x00\x00\x40" + shape + b"\x2a\x08" + np.array([3, 4], "<f4").tobytes()
    blob += b"\x2d\x00\x00\xa0\x40"
    found = weights.blob_array(weights.read_model(layer_of(blob)).layer[0].blobs[0])
    assert found[0] == (5,) and found[1].tolist() == [1, 2, 3, 4, 5] and found[1].dtype == np.float32


def test_doubles_come_before_floats() -> None:
    blob = schema.BlobProto(data=[1, 2], double_data=[3, 4], shape=schema.BlobShape(dim=[2]))
    assert weights.blob_array(blob)[1].tolist() == [3, 4]


def test_numbers_stay_where_they_are() -> None:
    """No copy: the array lies in the file's bytes."""
    data = layer_of(schema.BlobProto(data=range(1000), shape=schema.BlobShape(dim=[1000])).SerializeToString())
    values = weights.read_model(data).layer[0].blobs[0].values
    start = np.frombuffer(data, np.uint8).ctypes.data
    assert start <= values.ctypes.data < start + len(data) and not values.flags.writeable


@given(st.binary(max_size=60), st.integers(0, 60))
def test_anything_is_read_or_refused(noise: bytes, at: int) -> None:
    """Noise in a model, and noise alone: a value or a ConfigError."""
    whole = layer_of(schema.BlobProto(data=[1, 2], shape=schema.BlobShape(dim=[2])).SerializeToString())
    for data in (noise, whole[:at] + noise + whole[at:], whole[:at]):
        for read in (weights.read_model, weights.read_state):
            try:
                read(data)
            except ConfigError as error:
                assert "model" in str(error) or "state" in str(error)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**31, 2**63 - 1, -1])
def test_numbers_of_any_length(value: int) -> None:
    assert wire.signed(wire.varint(memoryview(wire.encoded(value)), 0)[0]) == value
