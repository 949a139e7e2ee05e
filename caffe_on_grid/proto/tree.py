"""The shape of a text-format document, before any schema: entries with their positions.

The grammar is that of protobuf's C++ parser, which real Caffe reads its prototxts with. Size, depth and count are
limited, so a hostile document ends in an error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NoReturn

from caffe_on_grid.errors import ConfigError

MAX_BYTES = 8 << 20
MAX_DEPTH = 64
MAX_ENTRIES = 200_000

_TOKEN = re.compile(
    r"""[ \t\r\n\f\v]*(?:\#[^\n]*(?:\n|\Z)[ \t\r\n\f\v]*)*
    (?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)(?![A-Za-z0-9_.]))
    |(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
    |(?P<mark>[{}<>\[\]:,;-])
    |(?P<end>\Z))""",
    re.VERBOSE,
)
_SKIP = re.compile(r"(?:[ \t\r\n\f\v]|#[^\n]*)*")
_CLOSERS = {"{": "}", "<": ">"}
_SHOWN = 40


class Entry:
    """One field as written.

    `kind` is "block" (see `entries`), "string" or "word" (see `raw`: the value as written, a word or number with its
    sign, or string literals side by side). `at` is the offset of the name, `start` of the value (a block: of its
    opening brace), `end` the offset behind the value (a block: of its closing brace), `after` that of what follows the
    whole field; `listed`: whether it stands in a `[…]`.
    """

    __slots__ = ("after", "at", "end", "entries", "kind", "listed", "name", "raw", "start")

    def __init__(self, name: str, at: int, listed: bool = False) -> None:
        self.name = name
        self.at = at
        self.listed = listed
        self.kind = ""
        self.raw = ""
        self.start = at
        self.end = self.after = at
        self.entries: Sequence[Entry] = ()


class Positions:
    """Offsets of a text as `where:LINE:COL`, and errors that say so."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def line_column(self, offset: int) -> tuple[int, int]:
        """Line and column of `offset`, both from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def place(self, offset: int) -> str:
        """`where:LINE:COL` of `offset`."""
        line, column = self.line_column(offset)
        return f"{self.where}:{line}:{column}"

    def fail(self, offset: int, message: str) -> NoReturn:
        """Raise ConfigError for the place `offset`."""
        raise ConfigError(f"{self.place(offset)}: {message}")


def shown(text: str) -> str:
    """`text` short enough for an error line."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def read(text: str, positions: Positions) -> list[Entry]:
    """The top-level entries of `text`; raises ConfigError with the place of what is wrong."""
    if len(text) > MAX_BYTES:
        positions.fail(0, f"the text is too large: {len(text)} characters, at most {MAX_BYTES}")
    return _Reader(text, positions).block("", 0, 0)


class _Reader:
    """Recursive descent with one token of look-ahead; the depth is bounded by MAX_DEPTH."""

    def __init__(self, text: str, positions: Positions) -> None:
        self._positions = positions
        self._fail = positions.fail
        self._text = text
        self._stream = self._tokens()
        self._count = 0
        self._kind, self._lexeme, self._at = next(self._stream)

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        text, at, match = self._text, 0, _TOKEN.match
        while True:
            found = match(text, at)
            if found is None:
                self._bad_token(_SKIP.match(text, at).end())  # type: ignore[union-attr]
            kind = str(found.lastgroup)
            at = found.end()
            yield kind, found[kind], found.start(kind)

    def _bad_token(self, at: int) -> NoReturn:
        char = self._text[at]
        if char in "\"'":
            self._fail(at, "the string is not closed on its line")
        if char.isdigit() or char == ".":
            self._fail(at, f"not a number: {shown(self._text[at:].split(None, 1)[0])!r}")
        self._fail(at, f"unexpected character {char!r}")

    def _advance(self) -> None:
        self._kind, self._lexeme, self._at = next(self._stream)

    def _got(self) -> str:
        return repr(shown(self._lexeme)) if self._kind != "end" else "the end of the file"

    def block(self, closer: str, opened: int, depth: int) -> list[Entry]:
        """Entries up to `closer`, which becomes the present token."""
        entries: list[Entry] = []
        while self._lexeme != closer or self._kind == "string":
            if self._kind == "end":
                line, _ = self._positions.line_column(opened)
                self._fail(
                    self._at, f"expected {closer!r} for the block opened in line {line}, got the end of the file"
                )
            self._field(entries, depth)
        return entries

    def _field(self, entries: list[Entry], depth: int) -> None:
        if self._kind != "word":
            self._fail(self._at, f"expected the name of a field, got {self._got()}{self._extension()}")
        name, at, first = self._lexeme, self._at, len(entries)
        self._advance()
        colon = self._lexeme == ":" and self._kind == "mark"
        if colon:
            self._advance()
        if self._lexeme == "[" and self._kind == "mark":
            self._list(name, at, entries, depth)
        else:
            if not colon and self._lexeme not in _CLOSERS:
                self._fail(self._at, f"expected ':' or '{{' after {shown(name)!r}, got {self._got()}")
            entries.append(self._value(Entry(name, at), depth))
        if self._kind == "mark" and self._lexeme in ",;":
            self._advance()
        for entry in entries[first:]:
            entry.after = self._at

    def _extension(self) -> str:
        return " (extensions and Any are not part of Caffe's messages)" if self._lexeme == "[" else ""

    def _list(self, name: str, at: int, entries: list[Entry], depth: int) -> None:
        self._advance()
        while self._lexeme != "]":
            entries.append(self._value(Entry(name, at, listed=True), depth))
            if self._lexeme == ",":
                self._advance()
            elif self._lexeme != "]":
                self._fail(self._at, f"expected ',' or ']' in the list of {shown(name)!r}, got {self._got()}")
        self._advance()

    def _value(self, entry: Entry, depth: int) -> Entry:
        self._count += 1
        if self._count > MAX_ENTRIES:
            self._fail(entry.at, f"more than {MAX_ENTRIES} fields")
        entry.start = self._at
        if self._kind == "string":
            self._string(entry)
        elif self._lexeme in _CLOSERS:
            self._block_value(entry, depth)
        else:
            self._word(entry)
        return entry

    def _string(self, entry: Entry) -> None:
        entry.kind, parts = "string", []
        while self._kind == "string":
            parts.append(self._lexeme)
            entry.end = self._at + len(self._lexeme)
            self._advance()
        entry.raw = "".join(parts)

    def _block_value(self, entry: Entry, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self._fail(entry.at, f"blocks nested deeper than {MAX_DEPTH}")
        entry.kind, closer = "block", _CLOSERS[self._lexeme]
        self._advance()
        entry.entries = self.block(closer, entry.start, depth + 1)
        entry.end = self._at
        self._advance()

    def _word(self, entry: Entry) -> None:
        sign = ""
        if self._lexeme == "-":
            sign = "-"
            self._advance()
        if self._kind not in ("word", "number"):
            self._fail(self._at, f"expected a value for {shown(entry.name)!r}, got {self._got()}")
        entry.kind, entry.raw, entry.end = "word", sign + self._lexeme, self._at + len(self._lexeme)
        self._advance()


_STRING = re.compile(r""""([^"\\\n]*(?:\\.[^"\\\n]*)*)"|'([^'\\\n]*(?:\\.[^'\\\n]*)*)'""")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPED = {ord(k): v.encode() for k, v in zip("abfnrtv\\'\"?", "\a\b\f\n\r\t\v\\'\"?")}


def unquote(raw: str) -> bytes:
    """The bytes that one or more string literals stand for; raises ValueError for an escape that does not exist."""
    body = "".join(a or b for a, b in _STRING.findall(raw)).encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(_unescape, body) if b"\\" in body else body


def _unescape(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if code[0] in b"01234567":
        return bytes([int(code, 8) & 255])
    if code[0] in b"xX" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0] in b"uU" and len(code) > 1:
        return chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")
    if code[0] not in _ESCAPED:
        raise ValueError(f"unknown escape \\{code.decode(errors='replace')}")
    return _ESCAPED[code[0]]


def quote(value: str) -> str:
    """`value` as one string literal."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
