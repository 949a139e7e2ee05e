"""The protobuf wire format, as far as reading and writing weights needs it: no copy of the numbers is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Union

Bytes = Union[bytes, memoryview]

VARINT, WIDE, SPAN, NARROW = 0, 1, 2, 5
"""Wire types: varint, eight bytes, length and bytes, four bytes."""
LONGEST = 10
"""Most bytes of a varint."""


class Malformed(ValueError):
    """What was read is no protobuf message."""


class Field(NamedTuple):
    """One field as it stands in a message."""

    number: int
    wire: int
    value: int
    """Of a varint."""
    body: memoryview
    """The bytes of anything else."""


def fields(message: memoryview) -> Iterator[Field]:
    """The fields of a message in order; raises Malformed."""
    at = 0
    while at < len(message):
        field, at = field_at(message, at)
        yield field


def field_at(message: memoryview, at: int) -> tuple[Field, int]:
    """The field at place `at` and the place after it; raises Malformed."""
    tag, start = varint(message, at)
    number, wire = tag >> 3, tag & 7
    if wire == VARINT:
        value, after = varint(message, start)
        return Field(number, wire, value, message[:0]), after
    start, after = _extent(message, start, wire)
    if number == 0 or after > len(message):
        raise Malformed(f"field {number} at byte {at} reaches beyond its message")
    return Field(number, wire, 0, message[start:after]), after


def _extent(message: memoryview, at: int, wire: int) -> tuple[int, int]:
    """Where the bytes of a field begin and end."""
    if wire == SPAN:
        size, at = varint(message, at)
        return at, at + size
    if wire not in (WIDE, NARROW):
        raise Malformed(f"wire type {wire} at byte {at}")
    return at, at + (8 if wire == WIDE else 4)


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """The number at place `at` and the place after it."""
    value = 0
    for index, byte in enumerate(message[at : at + LONGEST]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise Malformed(f"an endless or cut-off number at byte {at}")


def signed(value: int) -> int:
    """A varint as int64."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def encoded(value: int) -> bytes:
    """A number as a varint; negative ones in ten bytes, as protobuf does."""
    value %= 2**64
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def span_head(number: int, size: int) -> bytes:
    """What stands before the `size` bytes of field `number`."""
    return encoded(number << 3 | SPAN) + encoded(size)
