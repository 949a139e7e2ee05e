"""Random changes to valid files, the same for a seed on every machine."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Sequence

Change = Callable[[random.Random, bytearray, Sequence[bytes]], None]
NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1)
WORDS = (
    b"{", b"}", b"<", b">", b"[", b"]", b":", b",", b";", b"-", b"#", b'"', b"'", b"\\", b"\n", b"\0", b"\xff", b"0x",
    b"1e999", b"-1", b"0", b"18446744073709551616", b"true", b"layer {", b"layers {", b"include { phase: TRAIN }",
    b'type: "Convolution"', b'type: "Pooling"', b'type: "Reshape"', b"kernel_size: 0", b"stride: 0", b"dim: -1",
    b"dim: 4611686018427387904", b"axis: -9", b'bottom: "data"', b'top: "data"', b"num_output: 4294967295", b"group: 0",
    b"loss_weight: 1", b"blobs { }", b"V0", b"\\777", b"\\u12", b"\xed\xa0\x80", b"{" * 70,
)  # fmt: skip


VALUES = (b"0", b"-1", b"1", b"2", b"3", b"4611686018427387904", b"4294967295", b"2147483647", b"1e30", b"nan", b"TEST")


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)


def _byte(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _cut(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    del data[at : at + 1 + rng.randrange(min(64, len(data)))]


def _end(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data)) :]


def _double(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    piece = data[at : at + 1 + rng.randrange(min(256, len(data)))]
    data[rng.randrange(len(data)) : 0] = piece * rng.choice((1, 1, 2, 20))


def _splice(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    at = rng.randrange(len(other))
    data[rng.randrange(len(data)) :] = other[at:]


def _number(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    data[at : at + 4] = struct.pack(rng.choice((">I", "<I")), rng.choice(NUMBERS))


def _noise(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    data[at:at] = bytes(rng.randrange(256) for _ in range(1 + rng.randrange(12)))


def _word(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A word in place of one that stands there, or between two."""
    places = [at for at, byte in enumerate(data) if byte in b" \n:{"] or [0]
    at = rng.choice(places)
    stop = min((place for place in places if place > at), default=len(data))
    data[at + 1 : stop if rng.random() < 0.5 else at + 1] = rng.choice(WORDS)


_VALUE = re.compile(rb": *([^ \n{}]+)")


def _value(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    """A field's value in place of another's, or an odd number."""
    places = list(_VALUE.finditer(data))
    found = _VALUE.findall(rng.choice(others))
    if places and found:
        at = rng.choice(places)
        data[at.start(1) : at.end(1)] = rng.choice((rng.choice(found), rng.choice(VALUES)))


BINARY: tuple[Change, ...] = (_flip, _byte, _cut, _end, _double, _splice, _number, _noise)
TEXT: tuple[Change, ...] = (_flip, _cut, _end, _double, _splice, _word, _word, *[_value] * 7)


def mutated(rng: random.Random, seeds: Sequence[bytes], changes: Sequence[Change]) -> bytes:
    """One of `seeds` with one to five changes."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        if data:
            rng.choice(changes)(rng, data, seeds)
    return bytes(data)
