"""Reading .caffemodel files and blobs, whatever Caffe wrote them.

Forks use the same field numbers for different things, so only what weights need is read: layer names, types, bottoms,
tops and blobs, in each of Caffe's three generations of layers. The numbers are not copied: they stay where the file is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, upgrade, upgrade_v0, wire
from caffe_on_grid.proto.wire import Field, Malformed

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEGACY = {1: "num", 2: "channels", 3: "height", 4: "width"}
_DATA, _SHAPE, _DOUBLES = 5, 7, 8
_T = TypeVar("_T")


@dataclass(frozen=True)
class Blob:
    """A stored blob."""

    shape: tuple[int, ...]
    legacy: bool
    """The shape is the four numbers (num, channels, height, width) of Caffe before 2015."""
    values: NDArray[Any]
    """Flat, in the precision of the file, read-only; their number may be wrong (see `blob_array`)."""


@dataclass(frozen=True)
class StoredLayer:
    """What a model holds of a layer; `type` is today's name, "" for one that is not known."""

    name: str
    type: str
    bottom: tuple[str, ...]
    top: tuple[str, ...]
    blobs: tuple[Blob, ...]


@dataclass(frozen=True)
class StoredModel:
    """What a .caffemodel holds."""

    name: str
    layer: tuple[StoredLayer, ...]


@dataclass(frozen=True)
class StoredState:
    """What a .solverstate holds."""

    iter: int
    learned_net: str
    current_step: int
    history: tuple[Blob, ...]


def read_model(data: Any, where: str = "model") -> StoredModel:
    """The model in `data` (bytes or a mapped file); V0 and V1 layers in today's form.

    Raises ConfigError (naming `where`) for what is not a .caffemodel.
    """
    return _read(_model, data, where, ".caffemodel (binary NetParameter)")


def read_state(data: Any, where: str = "state") -> StoredState:
    """The solver's state in `data`; raises ConfigError (naming `where`) for what is not a .solverstate."""
    return _read(_state, data, where, ".solverstate (binary SolverState)")


def _read(parse: Callable[[memoryview, str], _T], data: Any, where: str, kind: str) -> _T:
    try:
        return parse(memoryview(data), where)
    except Malformed as error:
        raise ConfigError(f"{where}: not a {kind}: {error}") from None


def _model(data: memoryview, where: str) -> StoredModel:
    name, old, new = "", [], []
    for field in _spans(data):
        if field.number == 1:
            name = _text(field)
        elif field.number == 2:
            old.append(_v1_layer(field.body))
        elif field.number == 100:
            new.append(_layer(field.body, _NOW))
    if len(data) and not (old or new):
        raise ConfigError(f"{where}: not a .caffemodel: it holds no layers")
    return StoredModel(name, (*(layer for layer in old if layer is not None), *new))


def _state(data: memoryview, where: str) -> StoredState:
    numbers, texts = {1: 0, 4: 0}, {2: ""}
    history: list[Blob] = []
    for field in wire.fields(data):
        if field.wire == wire.VARINT and field.number in numbers:
            numbers[field.number] = wire.signed(field.value)
        elif field.wire == wire.SPAN and field.number == 2:
            texts[2] = _text(field)
        elif field.wire == wire.SPAN and field.number == 3:
            history.append(parse_blob(field.body))
    return StoredState(numbers[1], texts[2], numbers[4], tuple(history))


@dataclass(frozen=True)
class _Numbers:
    """Field numbers of one generation of layers; 0: it has no such field."""

    name: int
    type: int
    bottom: int
    top: int
    blobs: int


_NOW = _Numbers(1, 2, 3, 4, 7)
_V1 = _Numbers(4, 0, 2, 3, 6)
_V0 = _Numbers(1, 2, 0, 0, 50)
_V1_TYPE, _V1_INNER = 5, 1


def _layer(body: memoryview, numbers: _Numbers) -> StoredLayer:
    found: dict[int, list[Field]] = {}
    for field in _spans(body):
        found.setdefault(field.number, []).append(field)
    texts = {number: tuple(map(_text, found.get(number, ()))) for number in (numbers.bottom, numbers.top)}
    blobs = tuple(parse_blob(field.body) for field in found.get(numbers.blobs, ()))
    last = {number: _text(found[number][-1]) for number in (numbers.name, numbers.type) if number in found}
    bottom, top = texts[numbers.bottom], texts[numbers.top]
    return StoredLayer(last.get(numbers.name, ""), last.get(numbers.type, ""), bottom, top, blobs)


def _v1_layer(body: memoryview) -> Optional[StoredLayer]:
    """A V1 or V0 layer in today's form; None for V0's padding layers, which hold nothing."""
    layer = _layer(body, _V1)
    kind, inner = 0, None
    for field in wire.fields(body):
        if field.number == _V1_TYPE and field.wire == wire.VARINT:
            kind = field.value
        if field.number == _V1_INNER and field.wire == wire.SPAN:
            inner = _layer(field.body, _V0)
    if inner is None:
        return StoredLayer(layer.name, upgrade.V1_TYPES.get(kind, ""), layer.bottom, layer.top, layer.blobs)
    number = schema.ENUMS["V1LayerParameter.LayerType"].get(upgrade_v0.V0_TYPES.get(inner.type, ""), 0)
    today = StoredLayer(inner.name, upgrade.V1_TYPES[number], layer.bottom, layer.top, inner.blobs)
    return None if inner.type == "padding" else today


def _spans(body: memoryview) -> Iterator[Field]:
    return (field for field in wire.fields(body) if field.wire == wire.SPAN)


def _text(field: Field) -> str:
    return bytes(field.body).decode("utf-8", "replace")


def parse_blob(body: memoryview) -> Blob:
    """The BlobProto in `body`; raises wire.Malformed."""
    import numpy as np

    legacy: dict[str, int] = {}
    shape: tuple[int, ...] = ()
    parts: dict[int, list[Any]] = {_DATA: [], _DOUBLES: []}
    place, end = 0, len(body)
    while place < end:
        field, place = _next_field(body, place, parts)
        if field is not None and field.wire == wire.SPAN and field.number == _SHAPE:
            shape = _dims(field.body)
        elif field is not None and field.wire == wire.VARINT and field.number in _LEGACY:
            legacy[_LEGACY[field.number]] = _int32(field.value)
    found = parts[_DOUBLES] or parts[_DATA]
    values = found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.float32), *found])
    if legacy:
        shape = tuple(legacy.get(name, 0) for name in _LEGACY.values())
    return Blob(shape, bool(legacy), values)


def _next_field(body: memoryview, at: int, parts: dict[int, list[Any]]) -> tuple[Optional[Field], int]:
    """The field at `at` and the place after it; numbers (float data, double data) go to `parts` instead."""
    import numpy as np

    tag, _ = wire.varint(body, at)
    number, kind = tag >> 3, tag & 7
    width = 8 if number == _DOUBLES else 4
    if number in parts and kind == (wire.WIDE if width == 8 else wire.NARROW):
        run, after = _unpacked(body, at, tag, width)
        parts[number].append(run)
        return None, after
    field, after = wire.field_at(body, at)
    if number not in parts or kind != wire.SPAN:
        return field, after
    if len(field.body) % width:
        raise Malformed(f"{len(field.body)} bytes of packed numbers")
    parts[number].append(np.frombuffer(field.body, f"<f{width}"))
    return None, after


def _unpacked(body: memoryview, at: int, tag: int, width: int) -> tuple[Any, int]:
    """Numbers that stand one by one, each with its tag: the run of them from `at` on, and the place after it."""
    import numpy as np

    whole = (len(body) - at) // (1 + width)
    if not whole:
        raise Malformed(f"a number at byte {at} reaches beyond its message")
    run = np.frombuffer(body[at : at + whole * (1 + width)], [("tag", "u1"), ("value", f"<f{width}")])
    others = np.flatnonzero(run["tag"] != tag)
    count = int(others[0]) if len(others) else whole
    return run["value"][:count], at + count * (1 + width)


def _dims(body: memoryview) -> tuple[int, ...]:
    dims: list[int] = []
    for field in wire.fields(body):
        if field.number == 1 and field.wire == wire.VARINT:
            dims.append(wire.signed(field.value))
        elif field.number == 1 and field.wire == wire.SPAN:
            at = 0
            while at < len(field.body):
                value, at = wire.varint(field.body, at)
                dims.append(wire.signed(value))
    return tuple(dims)


def _int32(value: int) -> int:
    value &= 2**32 - 1
    return value - 2**32 if value >= 2**31 else value


def as_blob(blob: Any) -> Blob:
    """A BlobProto message, or a Blob as it is."""
    return blob if isinstance(blob, Blob) else parse_blob(memoryview(blob.SerializeToString()))


def shape_of(blob: Any) -> tuple[int, ...]:
    """The blob's shape; the legacy form gives (num, channels, height, width)."""
    if isinstance(blob, Blob):
        return blob.shape
    legacy = tuple(_LEGACY.values())
    if any(blob.HasField(name) for name in legacy):
        return tuple(int(getattr(blob, name)) for name in legacy)
    return tuple(int(dim) for dim in blob.shape.dim)


def blob_array(blob: Any, where: str = "blob") -> tuple[tuple[int, ...], Any]:
    """Shape and values (flat float32 array, perhaps read-only) of a Blob or BlobProto, from data or double_data.

    Raises ConfigError (naming `where`) where the number of values is not the shape's.
    """
    import numpy as np

    found = as_blob(blob)
    count = math.prod(found.shape)
    if min(found.shape, default=0) < 0 or count != len(found.values):
        raise ConfigError(f"{where}: {len(found.values)} values for shape {found.shape}, expected {count}")
    with np.errstate(over="ignore"):  # a double may be infinite as a float
        return found.shape, np.asarray(found.values, np.float32)
