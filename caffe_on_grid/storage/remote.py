"""A storage over a store's own client: publishing by renaming, bulk reads, retries, and errors in one line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, Protocol, TypeVar

from caffe_on_grid.errors import ConfigError, EnvironmentFault, GridError, SecurityFault
from caffe_on_grid.storage import bulk, local, paths

Content = Callable[[], Iterator[bytes]]
"""Yields a content in pieces, from its start each time it is called."""
T = TypeVar("T")

DELAYS_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses before each further try of what a store could not do for the moment."""
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class Entry:
    """A file (`size` in bytes) or folder; `modified` is any text that changes with the content."""

    size: int
    folder: bool
    modified: str


class StoreFault(Exception):
    """What a store's client met: `kind` is a key of FAULTS, `detail` the store's own words (one line is shown)."""

    def __init__(self, kind: str, detail: str) -> None:
        """`kind`: the name of a Java exception or one of our own."""
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail.strip().splitlines()[0] if detail.strip() else "no detail"


class Client(Protocol):
    """The few calls a store must offer. Paths have no scheme and no host; every failure is a StoreFault."""

    @property
    def appears_whole(self) -> bool:
        """Whether a file is seen only when its writer closes it, so that publishing needs no temporary name."""

    def entry(self, path: str) -> Optional[Entry]:
        """What is at `path`; None if nothing is."""

    def names(self, path: str) -> list[str]:
        """Names in a folder, in any order."""

    def pieces(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        """A range that lies within the file, in pieces; several threads may read."""

    def create(self, path: str, content: Content) -> None:
        """Write a file and its parents, replacing one that is there."""

    def append(self, path: str, data: bytes) -> None:
        """Add to a file; StoreFault FileNotFoundException if there is none."""

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing a file of that name, in one step."""

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all in it."""


FAULTS: dict[str, tuple[type[GridError], str]] = {
    "FileNotFoundException": (ConfigError, "no such file or folder; check the path"),
    "ParentNotDirectoryException": (ConfigError, "a part of the path is a file, not a folder; check the path"),
    "IsFolder": (ConfigError, "is a folder where a file is wanted; name a file"),
    "NotFolder": (ConfigError, "a part of the path is a file, not a folder; check the path"),
    "FileAlreadyExistsException": (
        ConfigError,
        "a file stands where a folder is wanted; remove it or name another folder",
    ),
    "InvalidPathException": (ConfigError, "the store does not take this path; check it ({detail})"),
    "IllegalArgumentException": (ConfigError, "the store does not take this path; check it ({detail})"),
    "MaxPathComponentLengthExceeded": (ConfigError, "the name is too long for this store; shorten it"),
    "PathComponentTooLongException": (ConfigError, "the name is too long for this store; shorten it"),
    "AccessControlException": (SecurityFault, "permission denied ({detail}); ask the owner or name another path"),
    "AuthorizationException": (SecurityFault, "not allowed ({detail}); ask the administrator"),
    "SecurityException": (SecurityFault, "not allowed ({detail}); run kinit, or ask the administrator"),
    "AuthenticationException": (SecurityFault, "who you are could not be proved ({detail}); run kinit"),
    "SaslException": (SecurityFault, "who you are could not be proved ({detail}); run kinit"),
    "InvalidToken": (SecurityFault, "the delegation token is expired or unknown ({detail}); submit the job again"),
    "NSQuotaExceededException": (
        EnvironmentFault,
        "the quota of names is used up ({detail}); remove files or have it raised",
    ),
    "DSQuotaExceededException": (
        EnvironmentFault,
        "the space quota is used up ({detail}); remove files or have it raised",
    ),
    "QuotaByStorageTypeExceededException": (
        EnvironmentFault,
        "a storage type's quota is used up ({detail}); remove files",
    ),
    "SafeModeException": (
        EnvironmentFault,
        "HDFS is in safe mode, read-only; wait, or `hdfs dfsadmin -safemode leave`",
    ),
    "StandbyException": (
        EnvironmentFault,
        "the NameNode is a standby ({detail}); name the nameservice or the active one",
    ),
    "RetriableException": (EnvironmentFault, "the NameNode is not ready ({detail}); try again in a while"),
    "Unreachable": (EnvironmentFault, "the store does not answer ({detail}); check the address, and that it is up"),
    "UnknownHost": (EnvironmentFault, "no such host or nameservice ({detail}); check the URI and HADOOP_CONF_DIR"),
    "Broken": (EnvironmentFault, "the transfer broke off ({detail}); try again"),
    "BlockMissingException": (EnvironmentFault, "a block has no healthy replica ({detail}); look with `hdfs fsck`"),
    "RecoveryInProgressException": (EnvironmentFault, "the file is being recovered from another writer; wait a minute"),
    "AlreadyBeingCreatedException": (EnvironmentFault, "another writer has the file open; end that job or wait"),
}
"""Kind of a StoreFault → class and what is said after the URI; others are an EnvironmentFault in the store's words."""

PASSING = frozenset({"SafeModeException", "StandbyException", "RetriableException", "Unreachable", "Broken"})
"""Worth another try where trying twice does no harm: whether the store did it already is not known."""


def translate(fault: StoreFault, uri: str) -> GridError:
    """The one-line error that stands for `fault`, met while working on `uri`."""
    cls, text = FAULTS.get(fault.kind, (EnvironmentFault, f"{fault.kind}: {{detail}}"))
    return cls(f"{uri}: {text.format(detail=fault.detail)}")


class RemoteStorage:
    """Files by URI through a store's client; see `caffe_on_grid.storage.api.Storage` for what each method promises."""

    def __init__(self, open_client: Callable[[str], Client], delays_s: tuple[float, ...] = DELAYS_S) -> None:
        """`open_client` gives the client of a URI's host, at every operation; `delays_s`: see DELAYS_S."""
        self._open, self._delays_s = open_client, delays_s

    def entry(self, uri: str) -> Optional[Entry]:
        """What is at `uri`; None if nothing is."""
        return self._call(uri, lambda client, path: client.entry(path), PASSING)

    def exists(self, uri: str) -> bool:
        """Whether there is a file or folder."""
        return self.entry(uri) is not None

    def is_folder(self, uri: str) -> bool:
        """Whether it is a folder."""
        found = self.entry(uri)
        return found is not None and found.folder

    def size(self, uri: str) -> int:
        """Bytes of a file; ConfigError for a folder."""
        return self.file(uri).size

    def file(self, uri: str) -> Entry:
        """The entry of a file; ConfigError for a folder or nothing."""
        found = self.entry(uri)
        if found is None or found.folder:
            raise translate(StoreFault("IsFolder" if found else "FileNotFoundException", ""), uri)
        return found

    def names(self, uri: str) -> list[str]:
        """Names in a folder, sorted."""
        found = self.entry(uri)
        if found is None or not found.folder:
            raise translate(StoreFault("NotFolder" if found else "FileNotFoundException", ""), uri)
        return sorted(self._call(uri, lambda client, path: client.names(path), PASSING))

    def read(self, uri: str) -> bytes:
        """A file's content."""
        return b"".join(self.pieces(uri, 0, self.size(uri)))

    def pieces(self, uri: str, offset: int, length: int) -> Iterator[bytes]:
        """`length` bytes from `offset`, both within the file; a stream that breaks off is taken up where it ended."""
        path, end = paths.split(uri)[2], offset + length
        delays = iter(self._delays_s)
        while offset < end:
            try:
                for piece in self._open(uri).pieces(path, offset, end - offset):
                    offset += len(piece)
                    yield piece
                return
            except StoreFault as fault:
                delay_s = next(delays, None)
                if fault.kind not in PASSING or delay_s is None:
                    raise translate(fault, uri) from fault
            time.sleep(delay_s)

    def fetch(self, uri: str, path: Path, progress: bulk.Progress = bulk.silent) -> None:
        """Copy a file to `path`, whole or not at all, reading parts side by side."""
        self.copy(uri, self.size(uri), path, progress)

    def copy(self, uri: str, size: int, path: Path, progress: bulk.Progress = bulk.silent) -> int:
        """`fetch` of a file whose size is known; returns `bulk.checksum(path)`."""
        with local.door(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.parent / paths.temporary(path.name)
            try:
                value = bulk.copy(lambda at, count: self.pieces(uri, at, count), size, aside, progress)
                aside.replace(path)
            finally:
                with suppress(FileNotFoundError):
                    aside.unlink()
        return value

    def publish(self, path: Path, uri: str) -> None:
        """Copy `path` to `uri`, whole or not at all; makes the folder."""
        with local.door(str(path)):
            path.open("rb").close()
        self._place(uri, lambda: _pieces(path))

    def write(self, data: bytes, uri: str) -> None:
        """Make `data` the content of `uri`, whole or not at all; makes the folder."""
        self._place(uri, lambda: iter((data,)))

    def append(self, data: bytes, uri: str) -> None:
        """Add to the end of a file; makes it, and its folder. Tried once: even what failed may have added all of it."""
        self._call(uri, lambda client, path: _append(client, path, data), frozenset())

    def make_folder(self, uri: str) -> None:
        """Create a folder and its parents; one that exists is fine."""
        self._call(uri, lambda client, path: client.make_folder(path), PASSING)

    def remove(self, uri: str) -> None:
        """Delete a file, or a folder with all in it; ConfigError if there is none."""
        if not self.exists(uri):
            raise translate(StoreFault("FileNotFoundException", ""), uri)
        self._call(uri, lambda client, path: client.remove(path), PASSING)

    def check_writable(self, folder: str) -> None:
        """Raise unless a file can be made in `folder`, or in the nearest folder above it that exists."""
        place = folder
        while not self.exists(place) and paths.parent(place) != place:
            place = paths.parent(place)
        if not self.is_folder(place):
            raise translate(StoreFault("NotFolder", ""), folder)
        probe = paths.join(place, paths.temporary("probe"))
        self._call(probe, lambda client, path: client.create(path, lambda: iter(())), PASSING, folder)
        self._call(probe, lambda client, path: client.remove(path), PASSING, folder)

    def _place(self, uri: str, content: Content) -> None:
        """Write beside `uri`, then rename: a reader sees the old file or the new one."""
        if self.is_folder(uri):
            raise translate(StoreFault("IsFolder", ""), uri)
        if self._open(uri).appears_whole:
            self._call(uri, lambda client, path: client.create(path, content), PASSING)
            return
        aside = paths.join(paths.parent(uri), paths.temporary(paths.basename(uri)))
        target = paths.split(uri)[2]
        try:
            self._call(aside, lambda client, path: client.create(path, content), PASSING, uri)
            self._call(aside, lambda client, path: _rename(client, path, target), PASSING, uri)
        except BaseException:
            with suppress(StoreFault):
                self._open(uri).remove(paths.split(aside)[2])
            raise

    def _call(self, uri: str, act: Callable[[Client, str], T], again: frozenset[str], shown: Optional[str] = None) -> T:
        """`act`, tried again after a pause when it meets one of the kinds in `again`; its last fault as a GridError."""
        for delay_s in (*self._delays_s, None):
            try:
                return act(self._open(uri), paths.split(uri)[2])
            except StoreFault as fault:
                if fault.kind not in again or delay_s is None:
                    raise translate(fault, shown or uri) from fault
            time.sleep(delay_s)
        raise AssertionError("the last try returns or raises")


def _append(client: Client, path: str, data: bytes) -> None:
    try:
        client.append(path, data)
    except StoreFault as fault:
        if fault.kind != "FileNotFoundException":
            raise
        client.create(path, lambda: iter((data,)))


def _rename(client: Client, source: str, target: str) -> None:
    """Rename a file that was there a moment ago; where it is not any more, an earlier try has done it."""
    if client.entry(source) is not None:
        client.rename(source, target)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as content:
        yield from iter(lambda: content.read(_PIECE_BYTES), b"")
