"""Files of this machine (or of a shared mount): the storage of plain paths and `file:` URIs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Callable

from caffe_on_grid.errors import ConfigError, EnvironmentFault, GridError, SecurityFault
from caffe_on_grid.storage import paths

_COPY_BYTES = 1 << 20

FAULTS: dict[int, tuple[type[GridError], str]] = {
    errno.ENOENT: (ConfigError, "no such file or folder; check the path"),
    errno.ENOTDIR: (ConfigError, "a part of the path is a file, not a folder; check the path"),
    errno.EISDIR: (ConfigError, "is a folder where a file is wanted; name a file"),
    errno.EEXIST: (ConfigError, "a file stands where a folder is wanted; remove it or name another folder"),
    errno.ENOTEMPTY: (ConfigError, "the folder is not empty; remove it or name another"),
    errno.ENAMETOOLONG: (ConfigError, "the name is too long for this file system; shorten it"),
    errno.ELOOP: (ConfigError, "symbolic links lead in a circle; check the path"),
    errno.EINVAL: (ConfigError, "the file system does not take this name or operation; check the path"),
    errno.EROFS: (ConfigError, "the file system is read-only; name another folder"),
    errno.EACCES: (SecurityFault, "permission denied; ask the owner or name another path"),
    errno.EPERM: (SecurityFault, "operation not permitted; ask the owner or name another path"),
    errno.ENOSPC: (EnvironmentFault, "no space left on the device; free some or name another folder"),
    errno.EDQUOT: (EnvironmentFault, "the disk quota is used up; free some or name another folder"),
    errno.EIO: (EnvironmentFault, "the device reports an input/output error; check the disk or the mount"),
    errno.ESTALE: (EnvironmentFault, "the network mount is stale; mount it again"),
    errno.EMFILE: (EnvironmentFault, "too many open files in this process; raise `ulimit -n`"),
    errno.ENFILE: (EnvironmentFault, "too many open files on this machine; close some"),
    errno.ETXTBSY: (EnvironmentFault, "the file is being executed; end that program first"),
    errno.EFBIG: (EnvironmentFault, "the file grows past what the file system or `ulimit -f` allows"),
}
"""Error number → class and what is said after the path; others are an EnvironmentFault in the system's words."""


def translate(error: OSError, uri: str) -> GridError:
    """The one-line error that stands for `error`, met while working on `uri`."""
    cls, text = FAULTS.get(error.errno or 0, (EnvironmentFault, f"{error.strerror or error}; check the file system"))
    return cls(f"{uri}: {text}")


@contextmanager
def door(uri: str) -> Iterator[None]:
    """Every OSError inside leaves as the GridError that it stands for."""
    try:
        yield
    except OSError as error:
        raise translate(error, uri) from error


class LocalStorage:
    """Files by local path; see `caffe_on_grid.storage.api.Storage` for what each method promises."""

    def exists(self, uri: str) -> bool:
        """Whether there is a file or folder."""
        with door(uri):
            return _path(uri).exists()

    def is_folder(self, uri: str) -> bool:
        """Whether it is a folder."""
        with door(uri):
            return _path(uri).is_dir()

    def size(self, uri: str) -> int:
        """Bytes of a file; ConfigError for a folder."""
        with door(uri):
            return _file(uri).stat().st_size

    def names(self, uri: str) -> list[str]:
        """Names in a folder, sorted."""
        with door(uri):
            return sorted(entry.name for entry in _path(uri).iterdir())

    def read(self, uri: str) -> bytes:
        """A file's content."""
        with door(uri):
            return _path(uri).read_bytes()

    def pieces(self, uri: str, offset: int, length: int) -> Iterator[bytes]:
        """`length` bytes from `offset`, both within the file, in pieces."""
        with door(uri), _file(uri).open("rb") as content:
            content.seek(offset)
            while length > 0 and (piece := content.read(min(length, _COPY_BYTES))):
                length -= len(piece)
                yield piece

    def fetch(self, uri: str, path: Path) -> None:
        """Copy a file to `path`; a file fetched onto itself stays as it is."""
        with door(uri):
            source = _file(uri)
            if not (path.exists() and path.samefile(source)):
                _place(path, _copier(source))

    def publish(self, path: Path, uri: str) -> None:
        """Copy `path` to `uri`, whole or not at all; makes the folder."""
        with door(uri):
            _place(_path(uri), _copier(path))

    def write(self, data: bytes, uri: str) -> None:
        """Make `data` the content of `uri`, whole or not at all; makes the folder."""
        with door(uri):
            _place(_path(uri), lambda out: _write_all(out, data))

    def append(self, data: bytes, uri: str) -> None:
        """Add to the end of a file; makes it, and its folder."""
        with door(uri):
            path = _path(uri)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab", buffering=0) as out:
                _write_all(out, data)

    def make_folder(self, uri: str) -> None:
        """Create a folder and its parents; one that exists is fine."""
        with door(uri):
            _path(uri).mkdir(parents=True, exist_ok=True)

    def remove(self, uri: str) -> None:
        """Delete a file or link, or a folder with all in it; ConfigError if there is none."""
        with door(uri):
            path = _path(uri)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def check_writable(self, folder: str) -> None:
        """Raise unless a file can be made in `folder`, or in the nearest folder above it that exists."""
        with door(folder):
            place = _path(folder).absolute()
            while not place.exists():
                place = place.parent
            probe = place / paths.temporary("probe")
            probe.touch(exist_ok=False)
            probe.unlink()


def _path(uri: str) -> Path:
    path = paths.local_path(uri)
    if path is None:
        raise ConfigError(f"{uri}: not a local path; name a plain path or a file: URI")
    return path


def _file(uri: str) -> Path:
    path = _path(uri)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path


def _copier(source: Path) -> Callable[[BinaryIO], None]:
    def copy(out: BinaryIO) -> None:
        with source.open("rb") as content:
            shutil.copyfileobj(content, out, _COPY_BYTES)

    return copy


def _write_all(out: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[out.write(rest) :]


def _place(target: Path, fill: Callable[[BinaryIO], None]) -> None:
    """Fill a file beside `target`, force it to the disk, then rename: a reader sees the old file or the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.parent / paths.temporary(target.name)
    try:
        with aside.open("xb") as out:
            fill(out)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(target)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
