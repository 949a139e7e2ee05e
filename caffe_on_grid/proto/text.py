"""Protobuf's text format, as C++ Caffe accepts it, with the place of every error and every field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from google.protobuf import text_format

from caffe_on_grid.proto import forks, schema, tree
from caffe_on_grid.spec.codec import suggestion


class Field(NamedTuple):
    """A scalar field as written."""

    path: tuple[str, ...]
    """Names from the top, e.g. ("layer", "data_param", "source")."""
    value: str
    """Unquoted."""
    line: int
    column: int
    """Of the value, both from 1."""
    start: int
    end: int
    """Offsets of the value in the text, quotes included."""
    parent: int
    """Number of the enclosing block: equal for fields that stand in the same block."""
    is_string: bool


class Unknown(NamedTuple):
    """A field that the message lacks."""

    at: int
    after: int
    """Offsets of its name, and of what follows it."""
    words: str
    """`where:LINE:COL: …`, as the error would be."""


def fields(text: str, where: str = "prototxt") -> list[Field]:
    """Every scalar of `text`, in order, whatever its schema; raises ConfigError where the text is malformed."""
    positions = tree.Positions(text, where)
    found: list[Field] = []
    blocks: list[tuple[tuple[str, ...], Sequence[tree.Entry]]] = [((), tree.read(text, positions))]
    for number, (path, entries) in enumerate(_growing(blocks)):
        for entry in entries:
            if entry.kind == "block":
                blocks.append(((*path, entry.name), entry.entries))
            else:
                found.append(_field((*path, entry.name), entry, number, positions))
    return sorted(found, key=lambda field: field.start)


def _growing(blocks: list[Any]) -> Iterator[Any]:
    """The items of a list that grows meanwhile."""
    index = 0
    while index < len(blocks):
        yield blocks[index]
        index += 1


def _field(path: tuple[str, ...], entry: tree.Entry, parent: int, positions: tree.Positions) -> Field:
    line, column = positions.line_column(entry.start)
    quoted = entry.kind == "string"
    value = _bytes(entry, positions).decode("utf-8", "replace") if quoted else entry.raw
    return Field(path, value, line, column, entry.start, entry.end, parent, quoted)


def parse(cls: Any, text: str, where: str, ignore_unknown: bool = False) -> Any:
    """The `cls` message that `text` holds; raises ConfigError `where:LINE:COL: …` as Caffe would refuse it.

    `ignore_unknown` skips fields that the message lacks instead.
    """
    return _filled(cls, text, where, ignore_unknown)[0]


def without_unknown(cls: Any, text: str, where: str) -> tuple[str, list[str]]:
    """`text` with blanks for the fields that `cls` lacks, and a line on each; the others keep their places.

    Raises ConfigError for anything else that is wrong.
    """
    pieces, done = [], 0
    unknown = _filled(cls, text, where, ignore_unknown=True)[1]
    for field in sorted(set(unknown)):
        pieces += [text[done : field.at], re.sub(r"[^\n]", " ", text[field.at : field.after])]
        done = field.after
    return "".join((*pieces, text[done:])), [f"{field.words}: left out" for field in dict.fromkeys(unknown)]


def _filled(cls: Any, text: str, where: str, ignore_unknown: bool) -> tuple[Any, list[Unknown]]:
    """The message, and the fields that it has no place for."""
    positions = tree.Positions(text, where)
    message = cls()
    filler = _Filler(positions, ignore_unknown)
    filler.fill(message, cls.DESCRIPTOR.name, tree.read(text, positions), "", 0)
    return message, filler.unknown


def render(message: Any) -> str:
    """`message` in text format; `parse` and Caffe read it back."""
    return str(text_format.MessageToString(message, as_utf8=True))


class _Filler:
    """Puts entries into messages, by the schema's table."""

    def __init__(self, positions: tree.Positions, ignore_unknown: bool) -> None:
        self._positions = positions
        self._ignore_unknown = ignore_unknown
        self.unknown: list[Unknown] = []

    def fill(self, message: Any, kind: str, entries: Sequence[tree.Entry], block: str, at: int) -> None:
        """Fill `message` (of the schema's message `kind`) from the entries of the block that opens at `at`."""
        table = schema.MESSAGES[kind]
        seen: set[str] = set()
        for entry in entries:
            spec = table.get(entry.name)
            if spec is None:
                self._unknown(entry, kind, table)
                continue
            if not spec.repeated:
                self._once(entry, seen)
            if spec.is_message:
                self._message(message, spec, entry)
            else:
                self._scalar(message, spec, entry)
        for spec in table.values():
            if spec.required and spec.name not in seen:
                self._positions.fail(at, f"{block} ({kind}) lacks its required field {spec.name!r}")

    def _once(self, entry: tree.Entry, seen: set[str]) -> None:
        if entry.name in seen:
            self._positions.fail(entry.at, f"field {entry.name!r} is specified multiple times, expected once")
        if entry.listed:
            self._positions.fail(entry.start, f"field {entry.name!r} takes one value, not a list")
        seen.add(entry.name)

    def _unknown(self, entry: tree.Entry, kind: str, table: dict[str, schema.FieldSpec]) -> None:
        near = forks.owner(entry.name) or suggestion(entry.name, table)
        words = f"{kind} has no field named {tree.shown(entry.name)!r}{near}"
        if not self._ignore_unknown:
            self._positions.fail(entry.at, words)
        self.unknown.append(Unknown(entry.at, entry.after, f"{self._positions.place(entry.at)}: {words}"))

    def _message(self, owner: Any, spec: schema.FieldSpec, entry: tree.Entry) -> None:
        if entry.kind != "block":
            self._expected(entry, "a block { … }")
        inner = getattr(owner, spec.name)
        if spec.repeated:
            inner = inner.add()
        else:
            inner.SetInParent()
        self.fill(inner, spec.kind, entry.entries, entry.name, entry.at)

    def _scalar(self, owner: Any, spec: schema.FieldSpec, entry: tree.Entry) -> None:
        if entry.kind == "block":
            self._expected(entry, _WANTED[spec.kind])
        value = _CONVERT[spec.kind](entry, spec, self._positions)
        if spec.repeated:
            getattr(owner, spec.name).append(value)
        else:
            setattr(owner, spec.name, value)

    def _expected(self, entry: tree.Entry, wanted: str) -> NoReturn:
        _expected(entry, wanted, self._positions)


def _expected(entry: tree.Entry, wanted: str, positions: tree.Positions, more: str = "") -> NoReturn:
    got = "a block" if entry.kind == "block" else tree.shown(entry.raw)
    positions.fail(entry.start, f"field {entry.name!r}: expected {wanted}, got {got}{more}")


_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,19})")
_FLOAT = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?")
_INFINITE = re.compile(r"-?(?:inf|infinity|nan)", re.IGNORECASE)
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint32": (0, 2**32 - 1)}
_BOOLS = {**dict.fromkeys(("true", "True", "t", "1"), True), **dict.fromkeys(("false", "False", "f", "0"), False)}
_WANTED = {
    **dict.fromkeys(("int32", "int64"), "an integer"),
    "uint32": "an integer that is not negative",
    **dict.fromkeys(("float", "double"), "a number"),
    "bool": "true or false",
    **dict.fromkeys(("string", "bytes"), "a string in quotes"),
    "enum": "one of its names",
}


def _number(raw: str) -> int:
    digits = raw.lstrip("-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
    value = int(digits, 8 if octal else 0)
    return -value if raw[0] == "-" else value


def _integer(entry: tree.Entry, spec: schema.FieldSpec, positions: tree.Positions) -> int:
    if entry.kind != "word" or not _INTEGER.fullmatch(entry.raw):
        _expected(entry, _WANTED[spec.kind], positions)
    value, (low, high) = _number(entry.raw), _RANGES[spec.kind]
    if not low <= value <= high or (low == 0 and entry.raw[0] == "-"):
        _expected(entry, f"{_WANTED[spec.kind]} from {low} to {high}", positions)
    return value


def _float(entry: tree.Entry, spec: schema.FieldSpec, positions: tree.Positions) -> float:
    if entry.kind == "word" and _FLOAT.fullmatch(entry.raw):
        return float(entry.raw.rstrip("fF"))
    if entry.kind != "word" or not _INFINITE.fullmatch(entry.raw):
        _expected(entry, _WANTED[spec.kind], positions)
    return float(entry.raw)


def _bool(entry: tree.Entry, spec: schema.FieldSpec, positions: tree.Positions) -> bool:
    if entry.kind != "word" or entry.raw not in _BOOLS:
        _expected(entry, _WANTED[spec.kind], positions)
    return _BOOLS[entry.raw]


def _enum(entry: tree.Entry, spec: schema.FieldSpec, positions: tree.Positions) -> int:
    values = schema.ENUMS[str(spec.enum)]
    if entry.kind == "word" and entry.raw in values:
        return values[entry.raw]
    if entry.kind == "word" and _INTEGER.fullmatch(entry.raw) and _number(entry.raw) in values.values():
        return _number(entry.raw)
    wanted = ", ".join(list(values)[:12]) + (", …" if len(values) > 12 else "")
    _expected(entry, f"one of {wanted}", positions, suggestion(entry.raw.upper(), values))


def _bytes(entry: tree.Entry, positions: tree.Positions) -> bytes:
    try:
        return tree.unquote(entry.raw)
    except ValueError as error:
        positions.fail(entry.start, f"field {entry.name!r}: {error} in the string")


def _raw(entry: tree.Entry, spec: schema.FieldSpec, positions: tree.Positions) -> bytes:
    if entry.kind != "string":
        _expected(entry, _WANTED[spec.kind], positions)
    return _bytes(entry, positions)


def _string(entry: tree.Entry, spec: schema.FieldSpec, positions: tree.Positions) -> str:
    try:
        return _raw(entry, spec, positions).decode()
    except UnicodeDecodeError:
        _expected(entry, "a string of UTF-8 characters", positions)


_CONVERT: dict[str, Callable[[tree.Entry, schema.FieldSpec, tree.Positions], Any]] = {
    **dict.fromkeys(("int32", "int64", "uint32"), _integer),
    **dict.fromkeys(("float", "double"), _float),
    "bool": _bool,
    "enum": _enum,
    "bytes": _raw,
    "string": _string,
}
