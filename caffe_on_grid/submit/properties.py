"""Java's .properties texts, in ASCII: job.properties, and what an Oozie shell action captures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_IN_KEY = re.compile(r"[=:#! ]")


def dumps(pairs: Mapping[str, str]) -> str:
    """One `key=value` line a pair, escaped as `java.util.Properties.load` reads it; the order is kept."""
    return "".join(line(key, value) for key, value in pairs.items())


def line(key: str, value: str) -> str:
    """One line; ends with a newline."""
    return f"{_IN_KEY.sub(_backslashed, _escaped(key))}={re.sub(r'^ ', _backslashed, _escaped(value))}\n"


def within(pairs: Iterable[tuple[str, str]], limit: int) -> str:
    """The lines of the first pairs that fit into `limit` bytes; a pair that does not is left out, the next is tried."""
    text = ""
    for key, value in pairs:
        more = line(key, value)
        text += more if len(text) + len(more) <= limit else ""
    return text


def _backslashed(match: re.Match[str]) -> str:
    return f"\\{match[0]}"


def _escaped(text: str) -> str:
    return "".join(_SHORT.get(letter) or _ascii(letter) for letter in text)


def _ascii(letter: str) -> str:
    """Printable ASCII as it is; else \\uXXXX, twice for what UTF-16 writes as a pair."""
    if " " <= letter <= "~":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
