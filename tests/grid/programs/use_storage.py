"""Every operation of a store, in whatever Python: `use_storage.py FOLDER-URI SCRATCH`; prints what served it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from caffe_on_grid.errors import SecurityFault
from caffe_on_grid.storage import bulk, hdfs, paths, stage
from caffe_on_grid.storage.registry import connect


def small_files(base: str) -> None:
    """Written, added to, listed, replaced, removed."""
    store, uri = connect(base), paths.join(base, "a b", "50%")
    store.write(b"one", uri)
    store.append(b"two", uri)
    assert (store.read(uri), store.size(uri), store.names(paths.parent(uri))) == (b"onetwo", 6, ["50%"])
    store.write(b"", uri)
    assert store.read(uri) == b""
    store.append(b"new", paths.join(base, "made"))
    store.make_folder(paths.join(base, "deep", "er"))
    assert store.is_folder(paths.join(base, "deep"))
    store.check_writable(paths.join(base, "later"))
    store.remove(paths.join(base, "a b"))
    assert store.names(base) == ["deep", "made"]


def large_file(base: str, scratch: Path) -> None:
    """More than one part, published whole, staged whole."""
    source = scratch / "source"
    source.write_bytes(os.urandom(1 << 20) * 65)
    connect(base).publish(source, paths.join(base, "train", stage.DATA))
    copy = stage.stage(paths.join(base, "train"), scratch / "cache")
    assert bulk.checksum(copy / stage.DATA) == bulk.checksum(source)


def denied(base: str) -> str:
    """What a stranger is told."""
    os.environ["HADOOP_USER_NAME"] = "stranger"
    try:
        connect(base).write(b"x", paths.join(base, "x"))
    except SecurityFault as fault:
        return str(fault)
    raise AssertionError("a stranger may write")


def main(base: str, scratch: Path) -> None:
    """All of it."""
    small_files(base)
    large_file(base, scratch)
    client = type(hdfs.open_client(base)).__name__
    print(json.dumps({"client": client, "python": list(sys.version_info[:2]), "denied": denied(base)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
