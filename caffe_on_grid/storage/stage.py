"""A source on a remote store as a local folder: copied once per node, shared by its ranks, checked before use."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError, EnvironmentFault
from caffe_on_grid.storage import bulk, local, paths
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.storage.remote import Entry, RemoteStorage

DATA = "data.mdb"
"""The one file of an LMDB directory that holds records; the lock file is each reader's own matter."""
_SPARE_BYTES = 256 << 20


@dataclass(frozen=True)
class Staged:
    """What a node's copy was made from, and what it must still be."""

    uri: str
    size: int
    modified: str
    checksum: int
    local: int
    """The copy's own modification time in ns: another says that somebody has touched it."""
    boot: str
    """The machine's start in which it was made: after another, what the disk kept is compared with the checksum."""


def stage(uri: str, cache: Path, progress: bulk.Progress = bulk.silent) -> Path:
    """The local path of the LMDB directory (or single file) at `uri`, copied below `cache` unless a good copy is there.

    One process of the node copies, parts side by side, while others wait for it. HDFS's own checksums guard the way.
    A copy is used again while the source has the same size and modification time and nobody has touched the copy. A
    local `uri` is returned as it is. ConfigError if there is no such source, EnvironmentFault (with figures) if the
    disk is too small. A copy takes as much room as its source; an older one of that source goes when the new is whole.
    """
    near = paths.local_path(uri)
    if near is not None:
        return near
    store = connect(uri)
    if not isinstance(store, RemoteStorage):
        raise ConfigError(f"{uri}: not a store that can be staged; name hdfs:// or a local path")
    source = paths.join(uri, DATA) if store.is_folder(uri) else uri
    place = cache / hashlib.sha256(uri.encode()).hexdigest()[:16]
    with _alone(place):
        found = store.file(source)
        target = place / paths.basename(source)
        if not _usable(_record(place), source, found, target):
            _copy(store, source, found, target, progress)
    return place if source != uri else target


def _copy(store: RemoteStorage, source: str, found: Entry, target: Path, progress: bulk.Progress) -> None:
    _check_room(source, found.size, target.parent)
    value = store.copy(source, found.size, target, progress)
    after = store.file(source)
    if after != found:
        target.unlink()
        raise EnvironmentFault(f"{source}: the file changed while it was copied; wait for its writer, then try again")
    record = Staged(source, found.size, found.modified, value, target.stat().st_mtime_ns, _boot())
    local.LocalStorage().write(json.dumps(asdict(record)).encode(), str(target.parent / "staged.json"))


def _usable(record: Optional[Staged], source: str, found: Entry, target: Path) -> bool:
    """Whether the copy is there, of this state of the source, and as it was made."""
    if record is None or (record.uri, record.size, record.modified) != (source, found.size, found.modified):
        return False
    try:
        state = target.stat()
    except FileNotFoundError:
        return False
    if (state.st_size, state.st_mtime_ns) != (record.size, record.local):
        return False
    return record.boot == _boot() or bulk.checksum(target) == record.checksum


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _record(place: Path) -> Optional[Staged]:
    """What the last whole copy was; None if there is none, or an unreadable record, which means: copy again."""
    try:
        return Staged(**json.loads((place / "staged.json").read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _check_room(source: str, size: int, place: Path) -> None:
    """A copy that cannot fit is refused before it fills the disk under everyone else."""
    free = shutil.disk_usage(place).free
    if size + _SPARE_BYTES > free:
        raise EnvironmentFault(
            f"{source}: a copy takes {size >> 20} MiB and {_SPARE_BYTES >> 20} MiB more, {place} has {free >> 20} MiB; "
            "free some, or name a cache on another disk"
        )


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold the node's lock on `place`; it ends with the process, however that ends. Half copies of the dead go."""
    with local.door(str(place)):
        place.mkdir(parents=True, exist_ok=True)
        handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for half in place.iterdir():
            if paths.is_temporary(half.name):
                half.unlink()
        yield
    finally:
        os.close(handle)
