"""Delegation tokens: the file that $HADOOP_TOKEN_FILE_LOCATION names, in Hadoop's `Credentials` format, version 0."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import SecurityFault

_MAGIC = b"HDTS"
_WRITABLE = 0
HDFS_KINDS = ("HDFS_DELEGATION_TOKEN", "WEBHDFS delegation", "SWEBHDFS delegation")
"""Kinds that a NameNode takes, by RPC and by HTTP alike."""


@dataclass(frozen=True)
class Token:
    """One token: what it is for (`kind`, `service`) and, secret, what proves it (`encoded`: as a URL carries it)."""

    kind: str
    service: str
    encoded: str

    def __repr__(self) -> str:
        """The password stays out of messages and logs."""
        return f"Token(kind={self.kind!r}, service={self.service!r})"


def hdfs_token(services: list[str]) -> Optional[Token]:
    """The container's token for the NameNode that one of `services` names ("host:port", "ha-hdfs:name").

    The only HDFS token is taken whatever its service: an address may be written by name or number. None without a file.
    """
    path = os.environ.get("HADOOP_TOKEN_FILE_LOCATION")
    if not path:
        return None
    found = [token for token in read(Path(path)) if token.kind in HDFS_KINDS]
    fitting = [token for token in found if token.service in services]
    return next(iter(fitting or (found if len(found) == 1 else [])), None)


def read(path: Path) -> list[Token]:
    """Every token of a file; SecurityFault if it is missing, unreadable or of another format."""
    try:
        return _parse(path.read_bytes())
    except OSError as error:
        raise SecurityFault(
            f"{path}: the token file cannot be read ({error.strerror}); submit the job again"
        ) from error
    except (ValueError, IndexError) as error:
        raise SecurityFault(f"{path}: not a Hadoop token file of version 0 ({error}); submit the job again") from error


def _parse(data: bytes) -> list[Token]:
    if data[:4] != _MAGIC or data[4] != _WRITABLE:
        raise ValueError("unknown header")
    count, at = _vint(data, 5)
    tokens = []
    for _ in range(count):
        _alias, at = _block(data, at)
        start = at
        for _ in ("identifier", "password"):
            _secret, at = _block(data, at)
        kind, at = _block(data, at)
        service, at = _block(data, at)
        encoded = base64.urlsafe_b64encode(data[start:at]).rstrip(b"=").decode()
        tokens.append(Token(kind.decode(), service.decode(), encoded))
    return tokens


def _block(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes with their length in front, as Text and the token's byte arrays are written."""
    length, at = _vint(data, at)
    if length < 0 or at + length > len(data):
        raise ValueError("cut short")
    return data[at : at + length], at + length


def _vint(data: bytes, at: int) -> tuple[int, int]:
    """WritableUtils.readVLong: one byte in -112…127, else one that tells sign and count of big-endian bytes after."""
    first = data[at] - 256 if data[at] > 127 else data[at]
    if first >= -112:
        return first, at + 1
    count = -112 - first if first >= -120 else -120 - first
    value = int.from_bytes(data[at + 1 : at + 1 + count], "big")
    return (value if first >= -120 else ~value), at + 1 + count
