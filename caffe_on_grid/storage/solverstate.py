"""The one field of Caffe's `.solverstate` that snapshots need: `learned_net`, the model that belongs to it.

Only the top level of the wire format is walked (protobuf encoding; SolverState: iter 1, learned_net 2, history 3,
current_step 4), so the histories, as large as the model, are never decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

from caffe_on_grid.errors import ConfigError

_LEARNED_NET = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


def learned_net(data: bytes, where: str) -> str:
    """The model's path as Caffe wrote it, "" if the state names none; ConfigError if `data` is no solver state."""
    found = b""
    try:
        for field, wire, start, stop in _fields(data):
            if field == _LEARNED_NET and wire == _BYTES:
                found = data[start:stop]
        return found.decode()
    except (ValueError, IndexError):
        raise ConfigError(f"{where}: not a solver state (or cut short); name a .solverstate that Caffe wrote") from None


def naming(path: str) -> bytes:
    """Bytes that, added to the end of a solver state, make `path` its learned_net: of one field the last wins."""
    raw = path.encode()
    return bytes([_LEARNED_NET << 3 | _BYTES]) + _varint_bytes(len(raw)) + raw


def _fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(field, wire type, start, stop) of every top-level field's content."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        stop, start = _content(data, at, tag & 7)
        if stop > len(data) or tag >> 3 == 0:
            raise ValueError("not a message")
        yield tag >> 3, tag & 7, start, stop
        at = stop


def _content(data: bytes, at: int, wire: int) -> tuple[int, int]:
    """(stop, start) of the content at `at`."""
    if wire in _FIXED:
        return at + _FIXED[wire], at
    if wire not in (_VARINT, _BYTES):
        raise ValueError("groups are not used by Caffe")
    value, after = _varint(data, at)
    return (after + value, after) if wire == _BYTES else (after, at)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("varint too long")


def _varint_bytes(value: int) -> bytes:
    low = [value & 0x7F]
    while value := value >> 7:
        low[-1] |= 0x80
        low.append(value & 0x7F)
    return bytes(low)
