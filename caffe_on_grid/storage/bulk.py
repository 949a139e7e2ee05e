"""Large files from a store to the disk: parts streamed side by side, with a checksum of what arrived."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable

from caffe_on_grid.errors import EnvironmentFault

PART_BYTES = 64 << 20
"""Bytes that one thread streams at a time."""
THREADS = 4
"""Parts under way at once: one stream rarely fills a network, and each is served by another DataNode."""
_READ_BYTES = 4 << 20

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) after each part, from the thread that copies."""
Source = Callable[[int, int], Iterator[bytes]]
"""(offset, length) → the bytes there, in pieces; called from several threads."""


def silent(done: int, total: int) -> None:
    """A Progress that says nothing."""


def copy(source: Source, size: int, path: Path, progress: Progress = silent) -> int:
    """Write the `size` bytes of `source` to `path` (made or emptied); returns what `checksum(path)` must give.

    The disk is not waited for: who keeps a copy longer than the machine runs compares the checksum. EnvironmentFault if
    fewer or more bytes come than were asked for.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            parts = pool.map(lambda at: _copy_part(source, at, min(PART_BYTES, size - at), handle, path), _starts(size))
            return _combine(_counted(parts, size, progress))
    finally:
        os.close(handle)


def checksum(path: Path) -> int:
    """The CRC-32 of the CRC-32s of a file's parts, as `copy` returns it."""
    with path.open("rb", buffering=0) as content:
        return _combine(_crc(content.read, PART_BYTES) for _ in _starts(os.fstat(content.fileno()).st_size))


def _starts(size: int) -> range:
    return range(0, size, PART_BYTES)


def _combine(parts: Iterable[int]) -> int:
    total = 0
    for value in parts:
        total = zlib.crc32(value.to_bytes(4, "big"), total)
    return total


def _counted(parts: Iterable[int], size: int, progress: Progress) -> Iterator[int]:
    for at, value in zip(_starts(size), parts):
        progress(min(at + PART_BYTES, size), size)
        yield value


def _copy_part(source: Source, start: int, length: int, handle: int, path: Path) -> int:
    at, value = start, 0
    for piece in source(start, length):
        value = zlib.crc32(piece, value)
        _write(handle, piece, at)
        at += len(piece)
    if at - start != length:
        raise EnvironmentFault(f"{path}: {at - start} of {length} bytes came from offset {start}; did the file change?")
    return value


def _write(handle: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        done = os.pwrite(handle, rest, at)
        rest, at = rest[done:], at + done


def _crc(read: Callable[[int], bytes], length: int) -> int:
    value = 0
    while length and (piece := read(min(_READ_BYTES, length))):
        value, length = zlib.crc32(piece, value), length - len(piece)
    return value
