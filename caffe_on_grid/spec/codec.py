"""Strict JSON for frozen dataclasses: an unknown key, a missing key or a wrong type is an error that names it."""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Optional, TypeVar

from caffe_on_grid.errors import ConfigError

T = TypeVar("T")


def encode(value: Any) -> Any:
    """The JSON-ready form of a dataclass, recursively; tuples become lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    return value


def dumps(value: Any, indent: Optional[int] = None) -> str:
    """The JSON text of a dataclass, keys in the order of its fields."""
    return json.dumps(encode(value), indent=indent, ensure_ascii=False)


def loads(cls: type[T], text: str, where: str = "document") -> T:
    """Parse `text` as a `cls`; raises ConfigError naming `where` and the path of what is wrong."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    decoded: T = decode(cls, value, where)
    return decoded


def decode(cls: Any, value: Any, where: str = "document") -> Any:
    """The `cls` (a dataclass, builtin, Optional, tuple[X, ...] or dict[str, X]) that `value` encodes."""
    origin, args = typing.get_origin(cls), typing.get_args(cls)
    if dataclasses.is_dataclass(cls):
        return _decode_record(cls, value, where)
    if origin in _UNIONS:
        inner = next(a for a in args if a is not type(None))
        return None if value is None else decode(inner, value, where)
    if origin is tuple:
        return tuple(decode(args[0], v, f"{where}[{i}]") for i, v in enumerate(_expect(list, value, where)))
    if origin is dict:
        return {k: decode(args[1], v, f"{where}.{k}") for k, v in _expect(dict, value, where).items()}
    if cls is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value if cls is Any else _expect(cls, value, where)


_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))


def _decode_record(cls: Any, value: Any, where: str) -> Any:
    given = _expect(dict, value, where)
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{suggestion(key, known)}; known: {', '.join(known)}")
    for field in dataclasses.fields(cls):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in given:
            raise ConfigError(f"{where}: key {field.name!r} is missing")
    return cls(**{k: decode(hints[k], v, f"{where}.{k}") for k, v in given.items()})


def _expect(cls: Any, value: Any, where: str) -> Any:
    if not isinstance(value, cls) or (isinstance(value, bool) and cls is not bool):
        raise ConfigError(f"{where}: expected {cls.__name__}, got {type(value).__name__} {value!r}")
    return value


def suggestion(word: str, known: typing.Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the nearest known word, capitals apart if need be, or nothing."""
    plain = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word, list(plain.values()), 1)
    near = near or [plain[name] for name in difflib.get_close_matches(word.lower(), plain, 1)]
    return f" (did you mean {near[0]!r}?)" if near else ""
