"""Staging from fsspec's memory store: one copy per node, used again only while it is what it was made from."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

import pytest

from caffe_on_grid.errors import ConfigError, EnvironmentFault
from caffe_on_grid.storage import bulk, paths, stage
from caffe_on_grid.storage.registry import connect

CONTENT = os.urandom(100_000)


@pytest.fixture
def uri():
    found = f"memory://{uuid.uuid4().hex}/train"
    connect(found).write(CONTENT, paths.join(found, "data.mdb"))
    connect(found).write(b"lock", paths.join(found, "lock.mdb"))
    return found


@pytest.fixture
def copies(monkeypatch):
    """Counts the copies made."""
    made: list[Path] = []
    real = bulk.copy
    monkeypatch.setattr(bulk, "copy", lambda *args, **more: (made.append(args[2]), real(*args, **more))[1])
    return made


def test_a_directory_is_copied_once(uri, tmp_path, copies):
    seen: list[tuple[int, int]] = []
    place = stage.stage(uri, tmp_path / "cache", lambda done, total: seen.append((done, total)))
    assert (place / "data.mdb").read_bytes() == CONTENT
    assert not (place / "lock.mdb").exists()
    assert seen == [(len(CONTENT), len(CONTENT))]
    assert stage.stage(uri, tmp_path / "cache") == place
    assert len(copies) == 1


def test_parts_come_side_by_side_and_progress_is_in_order(uri, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk, "PART_BYTES", 7_000)
    seen: list[int] = []
    place = stage.stage(uri, tmp_path, lambda done, total: seen.append(done))
    assert (place / "data.mdb").read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert len(seen) == 15
    assert seen[-1] == len(CONTENT)


def test_a_single_file_may_be_staged(uri, tmp_path):
    path = stage.stage(paths.join(uri, "data.mdb"), tmp_path)
    assert path.name == "data.mdb"
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("local", ["/data/train", "file:///data/train"])
def test_a_local_source_stays_where_it_is(local, tmp_path):
    assert stage.stage(local, tmp_path) == Path("/data/train")


def test_ranks_that_come_together_share_one_copy(uri, tmp_path, copies):
    found: list[Path] = []
    ranks = [threading.Thread(target=lambda: found.append(stage.stage(uri, tmp_path))) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert len(copies) == 1


def changed_source(uri, copy):
    connect(uri).write(CONTENT[::-1], paths.join(uri, "data.mdb"))


def touched_copy(uri, copy):
    before = copy.stat().st_mtime_ns
    copy.write_bytes(CONTENT[:-1] + b"?")
    os.utime(copy, ns=(before, before + 10_000_000))  # the clock of files may stand still for some milliseconds


def truncated_copy(uri, copy):
    os.truncate(copy, 5)


def removed_copy(uri, copy):
    copy.unlink()


def broken_record(uri, copy):
    (copy.parent / "staged.json").write_text("{")


@pytest.mark.parametrize("spoil", [changed_source, touched_copy, truncated_copy, removed_copy, broken_record])
def test_what_is_not_the_source_any_more_is_copied_again(uri, tmp_path, copies, spoil):
    copy = stage.stage(uri, tmp_path) / "data.mdb"
    spoil(uri, copy)
    stage.stage(uri, tmp_path)
    assert copy.read_bytes() == connect(uri).read(paths.join(uri, "data.mdb"))
    assert len(copies) == 2


@pytest.mark.parametrize(("content", "made"), [(CONTENT, 1), (CONTENT[:-1] + b"?", 2)], ids=["kept", "lost"])
def test_after_a_restart_of_the_machine_the_checksum_decides(uri, tmp_path, copies, monkeypatch, content, made):
    copy = stage.stage(uri, tmp_path) / "data.mdb"
    before = copy.stat().st_mtime_ns
    copy.write_bytes(content)
    os.utime(copy, ns=(before, before))
    monkeypatch.setattr(stage, "_boot", lambda: "another")
    stage.stage(uri, tmp_path)
    assert copy.read_bytes() == CONTENT
    assert len(copies) == made


def test_what_the_dead_left_is_removed(uri, tmp_path):
    place = stage.stage(uri, tmp_path)
    (place / paths.temporary("data.mdb")).write_bytes(b"half")
    stage.stage(uri, tmp_path)
    assert sorted(entry.name for entry in place.iterdir()) == ["data.mdb", "lock", "staged.json"]


def test_no_source(uri, tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        stage.stage(paths.join(uri, "absent"), tmp_path)
    connect(uri).make_folder(paths.join(uri, "empty"))
    with pytest.raises(ConfigError, match=r"empty/data\.mdb: no such file"):
        stage.stage(paths.join(uri, "empty"), tmp_path)


def test_a_disk_too_small_is_refused_with_both_figures(uri, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(EnvironmentFault, match=r"a copy takes \d+ MiB .* has \d+ MiB"):
        stage.stage(uri, tmp_path)
    assert not list(tmp_path.glob("*/data.mdb"))


def test_a_source_that_changes_meanwhile_is_refused(uri, tmp_path, monkeypatch):
    def change(done: int, total: int) -> None:
        connect(uri).write(CONTENT[:50_000], paths.join(uri, "data.mdb"))

    with pytest.raises(EnvironmentFault, match="changed while it was copied"):
        stage.stage(uri, tmp_path, change)
    assert not list(tmp_path.glob("*/data.mdb"))
