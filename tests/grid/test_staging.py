"""Staging an LMDB directory from real HDFS: whole, shared by processes, and never from a rotten replica."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.storage import bulk, hdfs, stage
from caffe_on_grid.storage.remote import RemoteStorage

STAGE = """
import sys
from pathlib import Path
from caffe_on_grid.storage import stage
print(stage.stage(sys.argv[1], Path(sys.argv[2])))
"""


@pytest.fixture(params=["hdfs", "webhdfs"])
def uri(request, grid, hdfs_folder):
    return f"{getattr(grid, request.param)}{hdfs_folder}/train"


def write_lmdb(folder, uri, records=2000):
    with lmdb.open(str(folder), map_size=1 << 28) as environment, environment.begin(write=True) as transaction:
        for index in range(records):
            transaction.put(f"{index:08}".encode(), os.urandom(3000))
    for name in ("data.mdb", "lock.mdb"):
        hdfs.storage().publish(folder / name, f"{uri}/{name}")


def test_a_node_has_the_directory_once_and_can_read_it(grid, uri, tmp_path, root, monkeypatch):
    write_lmdb(tmp_path / "source", uri)
    command = [sys.executable, "-c", STAGE, uri, str(tmp_path / "cache")]
    ranks = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    (place,) = {rank.communicate(timeout=60)[0].strip() for rank in ranks}
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert sorted(entry.name for entry in Path(place).iterdir()) == ["data.mdb", "lock", "staged.json"]
    with lmdb.open(place, readonly=True, lock=False) as environment:
        assert environment.stat()["entries"] == 2000
    assert bulk.checksum(tmp_path / "source" / "data.mdb") == bulk.checksum(Path(place) / "data.mdb")


def holds(block, content):
    """Whether a block is this; those of files that are removed go at any time."""
    try:
        return block.stat().st_size == len(content) and block.read_bytes() == content
    except FileNotFoundError:
        return False


def test_a_rotten_replica_is_never_taken_for_the_data(grid, uri, tmp_path):
    content = os.urandom(300_000)
    hdfs.storage().write(content, f"{uri}/data.mdb")
    (block,) = (path for path in (grid.home / "dn").rglob("blk_*") if holds(path, content))
    with block.open("r+b") as damaged:
        damaged.seek(200_000)
        damaged.write(bytes([content[200_000] ^ 1]))
    store = RemoteStorage(hdfs.open_client, delays_s=(0.01,))
    with pytest.raises(EnvironmentFault) as caught:
        store.fetch(f"{uri}/data.mdb", tmp_path / "x")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert stage.DATA in str(caught.value)
