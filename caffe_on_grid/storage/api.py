"""What a storage is: files by URI. One implementation per scheme, chosen by `connect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol


class Storage(Protocol):
    """Files of one kind of store; every method raises ConfigError, SecurityFault or EnvironmentFault in one line."""

    def exists(self, uri: str) -> bool:
        """Whether there is a file or folder."""

    def is_folder(self, uri: str) -> bool:
        """Whether it is a folder."""

    def size(self, uri: str) -> int:
        """Bytes of a file."""

    def names(self, uri: str) -> list[str]:
        """Names in a folder, sorted."""

    def read(self, uri: str) -> bytes:
        """A small file's content."""

    def pieces(self, uri: str, offset: int, length: int) -> Iterator[bytes]:
        """`length` bytes from `offset`, both within the file, in pieces."""

    def fetch(self, uri: str, path: Path) -> None:
        """Copy a file to a local path."""

    def publish(self, path: Path, uri: str) -> None:
        """Copy a local file to `uri` so that it appears there whole or not at all (temporary name, then rename)."""

    def write(self, data: bytes, uri: str) -> None:
        """The same for a small content."""

    def append(self, data: bytes, uri: str) -> None:
        """Add to the end of a file (created if absent); readers may see it grow.

        What fails may have added a part of it, or all: whoever tries again looks at the size first.
        """

    def make_folder(self, uri: str) -> None:
        """Create a folder and its parents."""

    def remove(self, uri: str) -> None:
        """Delete a file, or a folder with all in it."""

    def check_writable(self, folder: str) -> None:
        """Raise unless files can be created in `folder` (which may not exist yet)."""
