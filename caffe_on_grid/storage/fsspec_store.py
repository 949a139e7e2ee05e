"""Every other store through fsspec (`s3a:`, `gs:`, `abfs:` …), where it and the store's own package are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Optional

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.remote import Content, Entry, RemoteStorage, StoreFault

FAULTS: tuple[tuple[type[BaseException], str], ...] = (
    (FileNotFoundError, "FileNotFoundException"),
    (PermissionError, "AccessControlException"),
    (FileExistsError, "FileAlreadyExistsException"),
    (NotADirectoryError, "NotFolder"),
    (IsADirectoryError, "IsFolder"),
    (ConnectionError, "Unreachable"),
    (TimeoutError, "Unreachable"),
)
"""Error of a store's package → kind of fault; others are told by their own name."""
WHOLE = frozenset({"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "oci", "oss"})
"""Stores in which a file appears when its writer closes it: a temporary name would cost a second upload."""

PIECE_BYTES = 8 << 20


def installed() -> bool:
    """Whether fsspec can be imported here."""
    return importlib.util.find_spec("fsspec") is not None


def knows(scheme: str) -> bool:
    """Whether fsspec is installed and has a store for `scheme`."""
    if not installed():
        return False
    import fsspec

    return scheme in fsspec.available_protocols()


def storage() -> RemoteStorage:
    """The storage of every scheme that fsspec knows."""
    return RemoteStorage(open_client)


def open_client(uri: str) -> FsspecClient:
    """The client of a URI's host, kept for this process."""
    scheme, host, _ = paths.split(uri)
    return _client(scheme, host)


@lru_cache(maxsize=16)
def _client(scheme: str, host: str) -> FsspecClient:
    return FsspecClient(scheme, host)


class FsspecClient:
    """A `caffe_on_grid.storage.remote.Client` over one of fsspec's file systems."""

    def __init__(self, scheme: str, host: str) -> None:
        """`host`: "//bucket" or "//host", put before each path. EnvironmentFault if the store's package is missing."""
        import fsspec

        self._prefix, self._whole = f"{scheme}:{host or '//'}", scheme in WHOLE
        try:
            self._store: Any = fsspec.filesystem(scheme, use_listings_cache=False)
        except ImportError as error:
            raise EnvironmentFault(f"{scheme}: {error}; install it on the gateway and in the runtime") from error

    def entry(self, path: str) -> Optional[Entry]:
        """What is at `path`; None if nothing is."""
        try:
            with _door():
                found = self._store.info(self._prefix + path)
        except StoreFault as fault:
            if fault.kind in ("FileNotFoundException", "NotFolder"):
                return None
            raise
        stamps = (found.get(key) for key in ("ETag", "etag", "mtime", "LastModified", "last_modified", "created"))
        return Entry(found["size"] or 0, found["type"] == "directory", str(next((s for s in stamps if s), "")))

    def names(self, path: str) -> list[str]:
        """Names in a folder."""
        with _door():
            return [name.rstrip("/").rpartition("/")[2] for name in self._store.ls(self._prefix + path, detail=False)]

    def pieces(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        """A range that lies within the file, in pieces of a bounded size."""
        end = offset + length
        for at in range(offset, end, PIECE_BYTES):
            with _door():
                data: bytes = self._store.cat_file(self._prefix + path, start=at, end=min(at + PIECE_BYTES, end))
            yield data

    def create(self, path: str, content: Content) -> None:
        """Write a file and its parents, replacing one that is there."""
        self.make_folder(paths.parent(path))
        with _door():
            writer = self._store.open(self._prefix + path, "wb")
        self._fill(writer, content)

    def append(self, path: str, data: bytes) -> None:
        """Add to a file; a store that cannot gets the whole again."""
        found = self.entry(path)
        if found is None:
            raise StoreFault("FileNotFoundException", path)
        old = b"".join(self.pieces(path, 0, found.size)) if self._whole else b""
        with _door():
            writer = self._store.open(self._prefix + path, "wb" if self._whole else "ab")
        self._fill(writer, lambda: iter((old + data,)))

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        with _door():
            self._store.makedirs(self._prefix + path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing a file of that name."""
        with _door():
            self._store.mv(self._prefix + source, self._prefix + target)

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all in it."""
        with _door():
            self._store.rm(self._prefix + path, recursive=True)

    @property
    def appears_whole(self) -> bool:
        """Whether a file is seen only when its writer closes it."""
        return self._whole

    @staticmethod
    def _fill(writer: Any, content: Content) -> None:
        """A writer whose content breaks off is discarded where the store can, so that half a file never appears."""
        try:
            for piece in content():
                with _door():
                    writer.write(piece)
        except BaseException:
            if hasattr(writer, "discard"):
                writer.discard()
            raise
        with _door():
            writer.close()


@contextmanager
def _door() -> Iterator[None]:
    """Every error of the store inside leaves as a StoreFault; the packages raise what they please."""
    try:
        yield
    except Exception as error:
        kind = next((kind for cls, kind in FAULTS if isinstance(error, cls)), type(error).__name__)
        raise StoreFault(kind, str(error)) from error
