"""LMDB of Datum: the one door to lmdb. A source that reads by index, and the writer that makes such a database.

Only keys stay in memory (one buffer and its offsets). Pages that reads map in are given back by opening the file anew
now and then, because a container's memory limit may count them (YARN sums resident pages, whatever backs them).
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Optional

import lmdb

from caffe_on_grid.data.api import Record
from caffe_on_grid.data.datum import Decoder
from caffe_on_grid.errors import ConfigError, DataError
from caffe_on_grid.storage import local

RESIDENT_BYTES = 256 << 20
"""About this much of the file may be mapped in before it is opened anew."""
CHECK_READS = 64
"""How often that is looked at: measured, not summed, as one read may map 2 MiB (a large folio of the page cache)."""
_READERS = 1024


def open(path: str, force_color: bool = False, force_gray: bool = False) -> LmdbSource:
    """The source at `path`; ConfigError where it is no LMDB, DataError where it is empty or cut short.

    What the file system refuses is told as `storage.local` tells it (SecurityFault for permission denied).
    """
    return LmdbSource(path, Decoder(force_color, force_gray))


def _environment(path: str) -> lmdb.Environment:
    """The database opened for reading; makes no lock file where it may not write one."""
    folder = Path(path)
    data = folder / "data.mdb"
    with local.door(path):
        if not folder.exists():
            raise ConfigError(f"no LMDB at {path}: the path does not exist")
        if not data.is_file():
            a_level_db = (folder / "CURRENT").exists()
            kind = "a LevelDB; convert it to LMDB" if a_level_db else "no folder with a data.mdb in it"
            raise ConfigError(f"{path} is not an LMDB: it is {kind}")
        data.open("rb").close()
    lock = folder / "lock.mdb"
    lockable = os.access(folder, os.W_OK) and (os.access(lock, os.W_OK) or not lock.exists())
    try:
        environment = lmdb.open(path, readonly=True, lock=lockable, readahead=False, max_readers=_READERS, create=False)
        environment.reader_check()  # readers that were killed
    except lmdb.Error as error:
        raise ConfigError(f"{path} cannot be opened as an LMDB: {error}") from error
    return environment


def _resident_file_bytes() -> int:
    """How much of this process's memory is mapped files (and memory shared with others, which settles soon)."""
    return int(Path("/proc/self/statm").read_bytes().split()[2]) * mmap.PAGESIZE


def _check_length(path: str, environment: lmdb.Environment) -> None:
    """Reading past the end of a file that was cut short would kill the process (SIGBUS)."""
    promised = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    present = Path(path, "data.mdb").stat().st_size
    if present < promised:
        raise DataError(f"{path} is cut short: data.mdb has {present} bytes of {promised}; copy it again")


class _Keys:
    """Byte strings by index, in one buffer."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._bytes = bytearray()
        self._ends = array("Q", [0])
        for key in keys:
            self._bytes += key
            self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._bytes[self._ends[index] : self._ends[index + 1]])


class LmdbSource:
    """Records of one LMDB by index, in key order (bytewise, as LMDB and Caffe iterate)."""

    def __init__(self, path: str, decoder: Decoder) -> None:
        self.path = path
        self._decoder = decoder
        self._open()
        _check_length(path, self._environment)
        self._bounded = Path(path, "data.mdb").stat().st_size > RESIDENT_BYTES
        self._keys = _Keys(self._scan())
        if not len(self._keys):
            self.close()
            raise DataError(f"{path} is empty: it holds no records")

    def _open(self) -> None:
        self._environment = _environment(self.path)
        self._transaction = self._environment.begin()
        self._resident_before = _resident_file_bytes()
        self._reads = 0

    def _touched(self) -> bool:
        """Note a read; True where the file was opened anew to give its pages back."""
        self._reads += 1
        if not self._bounded or self._reads % CHECK_READS:
            return False
        if _resident_file_bytes() - self._resident_before < RESIDENT_BYTES:
            return False
        self.close()
        self._open()
        return True

    def _scan(self) -> Iterator[bytes]:
        """All keys in order."""
        keys = self._transaction.cursor().iternext(values=False)
        key = next(keys, None)
        while key is not None:
            yield key
            if self._touched():
                cursor = self._transaction.cursor()
                cursor.set_range(key)
                keys = cursor.iternext(values=False)
                next(keys)
            key = next(keys, None)

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, index: int) -> str:
        """The key of record `index` as text."""
        return self._keys[index].decode("utf-8", "backslashreplace")

    def read(self, index: int) -> Record:
        """Record `index`; raises DataError naming its key where it cannot be decoded."""
        value = self._value(index)
        key = self.key(index)
        if value is None:
            raise DataError(f"record {key!r} of {self.path} is gone: another program changed the LMDB")
        try:
            return self._decoder.record(key, value)
        except DataError as error:
            raise DataError(f"record {key!r} of {self.path} cannot be used: {error}") from None

    def datum(self, index: int) -> bytes:
        """Record `index` as it is stored, a serialised Datum; empty where another program removed it."""
        return self._value(index) or b""

    def _value(self, index: int) -> Optional[bytes]:
        try:
            value: Optional[bytes] = self._transaction.get(self._keys[index])
        except lmdb.Error as error:
            raise DataError(f"record {self.key(index)!r} of {self.path} cannot be read: {error}") from error
        self._touched()
        return value

    def close(self) -> None:
        """Let go of the file."""
        self._transaction.abort()
        self._environment.close()


class LmdbWriter:
    """Writes a new LMDB in commits of up to 1000 records; its map grows as needed."""

    COMMIT_RECORDS = 1000
    COMMIT_BYTES = 64 << 20

    def __init__(self, path: str, map_bytes: int = 1 << 30) -> None:
        self._environment = lmdb.open(path, map_size=map_bytes, sync=False, metasync=False)
        self._pending: list[tuple[bytes, bytes]] = []
        self._bytes = 0

    def put(self, key: bytes, value: bytes) -> None:
        """Add one record."""
        self._pending.append((key, value))
        self._bytes += len(key) + len(value)
        if len(self._pending) >= self.COMMIT_RECORDS or self._bytes >= self.COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        while not self._written():
            self._environment.set_mapsize(self._environment.info()["map_size"] * 2)
        self._pending.clear()
        self._bytes = 0

    def _written(self) -> bool:
        """Whether what is pending fitted into the map."""
        try:
            with self._environment.begin(write=True) as transaction:
                for key, value in self._pending:
                    transaction.put(key, value)
        except lmdb.MapFullError:
            return False
        return True

    def close(self) -> None:
        """Commit what is pending and put everything on the disk."""
        self._commit()
        self._environment.sync(True)
        self._environment.close()
