"""URIs of files: plain paths, `file:` URIs and `scheme://host/path`, taken apart as text (nothing is decoded)."""

from __future__ import annotations

import posixpath
import re
import secrets
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<host>//[^/]*)?(?P<path>/.*)?\Z", re.DOTALL)
_DOUBLE = re.compile(r"\.(caffemodel|solverstate)\.h5\Z")
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{12}\.part\Z", re.DOTALL)


def split(uri: str) -> tuple[str, str, str]:
    """(scheme, "//host" or "", path); a plain path has scheme "". A colon makes a URI only before a slash."""
    match = _URI.match(uri)
    if match is None or (match["host"] is None and match["path"] is None):
        return "", "", uri
    return match["scheme"].lower(), match["host"] or "", match["path"] or "/"


def scheme(uri: str) -> str:
    """The scheme, lower case; "" for a plain path."""
    return split(uri)[0]


def local_path(uri: str) -> Optional[Path]:
    """The local path that a plain path or a `file:` URI names, None for other schemes; ConfigError for file://HOST/."""
    kind, host, path = split(uri)
    if kind not in ("", "file"):
        return None
    if host not in ("", "//", "//localhost"):
        raise ConfigError(f"{uri}: a file: URI names no host here; write file://{path}")
    return Path(path)


def join(uri: str, *names: str) -> str:
    """`uri` with `names` below it."""
    kind, host, path = split(uri)
    return _unsplit(kind, host, posixpath.join(path, *names))


def parent(uri: str) -> str:
    """The folder that holds `uri`; "." for a bare name, the root for the root."""
    kind, host, path = split(uri)
    return _unsplit(kind, host, posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else "."))


def basename(uri: str) -> str:
    """The last name in `uri`."""
    return posixpath.basename(split(uri)[2].rstrip("/"))


def stem(uri: str) -> str:
    """The last name without its suffix; `.caffemodel.h5` and `.solverstate.h5` count as one suffix."""
    name = basename(uri)
    short = _DOUBLE.sub("", name)
    return short if short != name else posixpath.splitext(name)[0]


def temporary(name: str) -> str:
    """A fresh name under which `name` is written before it is renamed; `is_temporary` knows it again."""
    return f".{name}.{secrets.token_hex(6)}.part"


def is_temporary(name: str) -> bool:
    """Whether `name` is what a writer that was killed has left behind."""
    return _TEMPORARY.match(name) is not None


def _unsplit(kind: str, host: str, path: str) -> str:
    return f"{kind}:{host}{path}" if kind else path
