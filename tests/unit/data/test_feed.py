from __future__ import annotations

import contextlib
import dataclasses
import errno
import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import records

from caffe_on_grid.data import feed, shard, transform
from caffe_on_grid.data.api import FeedPlan, TransformPlan
from caffe_on_grid.errors import ConfigError, DataError, TrainingFailed

PROGRAM = Path(__file__).parent / "programs" / "feed_program.py"


@pytest.fixture
def path(tmp_path):
    return records.counted(tmp_path / "db", 10)


def plan(path: str, **changes) -> FeedPlan:
    fixed = {"batch": 4, "phase": "TRAIN", "rank": 0, "world": 1, "seed": 7}
    return FeedPlan(path, "data", "label", **{**fixed, **changes})


@contextlib.contextmanager
def started(one: FeedPlan):
    running = feed.start(one)
    try:
        yield running
    finally:
        running.close()


def labels(one: FeedPlan, batches: int) -> list[list[int]]:
    with started(one) as running:
        return [running.batch()["label"].astype(int).tolist() for _ in range(batches)]


def expected(one: FeedPlan, size: int, batches: int) -> list[list[int]]:
    stream = shard.stream(one, size)
    return [list(stream.indices(shard.positions(one, n))) for n in range(batches)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shuffle": False, "first": 3},
        {"rank": 1, "world": 3, "first": 2},
        {"feeders": 3},
        {"feeders": 2, "slots": 1},
        {"phase": "TEST", "passes": 3, "rank": 1, "world": 2},
    ],
)
def test_batches_are_those_of_the_stream(path, changes):
    one = plan(path, **changes)
    assert labels(one, 13) == expected(one, 10, 13)


def test_shapes_and_contents(path):
    with started(plan(path, transform=TransformPlan(scale=0.5))) as running:
        assert running.shapes == {"data": (4, 1, 2, 3), "label": (4,)}
        assert (running.records, running.skipped) == (10, 0)
        batch = running.batch()
        assert batch["data"].dtype == batch["label"].dtype == np.float32
        assert np.array_equal(batch["data"], np.broadcast_to(batch["label"].reshape(4, 1, 1, 1) / 2, (4, 1, 2, 3)))
        assert running.seconds > 0


def test_where_linux_has_no_memory_files(path, monkeypatch):
    def refuse(name: str) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert labels(plan(path), 9) == expected(plan(path), 10, 9)


def test_without_a_label_top(path):
    with started(dataclasses.replace(plan(path), label_top=None)) as running:
        assert running.shapes == {"data": (4, 1, 2, 3)}
        assert set(running.batch()) == {"data"}


def test_a_batch_stays_valid_until_the_next_call(path):
    one = plan(path, slots=2)
    with started(one) as running:
        for wanted in expected(one, 10, 30):
            batch = running.batch()
            before = batch["label"].copy()
            time.sleep(0.002)
            assert np.array_equal(before, batch["label"])
            assert before.astype(int).tolist() == wanted


@pytest.mark.parametrize("feeders", [1, 2])
def test_random_transforms_do_not_depend_on_ranks_or_resumption(tmp_path, feeders):
    images = {f"{i:08d}": records.raw(records.pixels(i, 3, 9, 11), i) for i in range(7)}
    path = records.write(tmp_path / "db", images)
    changes = {"transform": TransformPlan(mirror=True, crop=6, scale=0.1), "seed": 11, "feeders": feeders}
    with started(plan(path, batch=6, **changes)) as running:
        alone = [running.batch()["data"].copy() for _ in range(4)]
    for rank in range(2):
        with started(plan(path, batch=3, rank=rank, world=2, first=1, **changes)) as running:
            mine = [running.batch()["data"].copy() for _ in range(3)]
        assert np.array_equal(mine, [batch[3 * rank : 3 * rank + 3] for batch in alone[1:]])
    one = plan(path, batch=6, **changes)
    position = shard.positions(one, 2)[4]
    index = shard.stream(one, 7).index(position)
    out = np.empty((3, 6, 6), np.float32)
    transform.apply(records.pixels(index, 3, 9, 11), one.transform, "TRAIN", transform.draws(11, position), out)
    assert np.array_equal(alone[2][4], out)


def damaged(tmp_path: Path) -> str:
    values = {f"{i:08d}": records.raw(np.full((1, 2, 3), i, np.uint8), i) for i in range(10)}
    return records.write(tmp_path / "damaged", {**values, "00000004": b"\xff\xff", "00000005": b"\xff"})


def test_an_undecodable_record_is_named(tmp_path):
    with started(plan(damaged(tmp_path), shuffle=False)) as running:
        assert running.batch()["label"].tolist() == [0, 1, 2, 3]
        with pytest.raises(DataError, match=r"record '00000004' of .* not a Datum"):
            running.batch()


@pytest.mark.parametrize("feeders", [1, 2])
def test_undecodable_records_are_replaced_counted_and_named_once(tmp_path, capfd, feeders):
    with started(plan(damaged(tmp_path), shuffle=False, skip_bad=True, feeders=feeders)) as running:
        got = [running.batch()["label"].astype(int).tolist() for _ in range(5)]
        assert got == [[0, 1, 2, 3], [6, 6, 6, 7], [8, 9, 0, 1], [2, 3, 6, 6], [6, 7, 8, 9]]
        assert running.skipped == 6
    said = capfd.readouterr().err
    assert said.count("skipped: record '00000004'") == said.count("skipped: record '00000005'") == 1


def test_nothing_but_undecodable_records(tmp_path):
    path = records.write(tmp_path / "db", {"a": b"\xff", "b": b"\xff"})
    with pytest.raises(DataError, match="not one of its 2 records"):
        feed.start(plan(path, skip_bad=True))


def test_other_sizes_need_a_crop(tmp_path):
    values = {"a": records.raw(np.zeros((1, 6, 6), np.uint8), 0), "b": records.raw(np.zeros((1, 6, 7), np.uint8), 1)}
    path = records.write(tmp_path / "db", values)
    with started(plan(path, batch=1, shuffle=False)) as running:
        running.batch()
        with pytest.raises(DataError, match=r"record 'b' .* is 1×6×7 and the first 1×6×6.*crop_size"):
            running.batch()
    with started(plan(path, batch=2, transform=TransformPlan(crop=5))) as running:
        assert running.batch()["data"].shape == (2, 1, 5, 5)


def test_a_later_record_smaller_than_the_crop_is_named(tmp_path):
    values = {"a": records.raw(np.zeros((1, 6, 6), np.uint8), 0), "b": records.raw(np.zeros((1, 4, 7), np.uint8), 1)}
    path = records.write(tmp_path / "db", values)
    with (
        started(plan(path, batch=2, transform=TransformPlan(crop=5))) as running,
        pytest.raises(DataError, match=r"record 'b' .*crop_size 5 is larger than the image, 4×7"),
    ):
        running.batch()


def test_what_is_wrong_from_the_start(tmp_path, path):
    with pytest.raises(ConfigError, match="does not exist"):
        feed.start(plan(str(tmp_path / "absent"), feeders=2))
    with pytest.raises(DataError, match="crop_size 9 is larger"):
        feed.start(plan(path, transform=TransformPlan(crop=9)))


def test_a_rank_without_a_batch_in_the_pass(path):
    with (
        started(plan(path, phase="TEST", passes=1, rank=1, world=2)) as running,
        pytest.raises(ConfigError, match="rank 1 has none of the 1 batches"),
    ):
        running.batch()


def test_a_killed_feeder_is_noticed(path):
    with started(plan(path, feeders=2)) as running:
        running.batch()
        os.kill(running._feeders[1].pid, signal.SIGKILL)
        with pytest.raises(TrainingFailed, match=r"feeder 1 of .* was killed by signal 9"):
            for _ in range(20):
                running.batch()


def test_closing_ends_the_feeders_and_frees_the_descriptors(path):
    gc.collect()  # what earlier tests have left open is not to be closed meanwhile
    before = sorted(Path("/proc/self/fd").iterdir())
    first, second = feed.start(plan(path)), feed.start(plan(path, feeders=2))
    pids = [one.pid for one in first._feeders + second._feeders]
    first.batch()
    first.close()
    first.close()
    assert second.batch()["label"].shape == (4,)
    second.close()
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def run_program(python: str, path: str, how: str, **more) -> subprocess.Popen[str]:
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen([python, str(PROGRAM), path, how], stdout=pipe, stderr=null, text=True, **more)


def wait_until_gone(pids: list[int]) -> None:
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_feeders_die_with_their_parent_whatever_it_dies_of(path, root, how):
    env = {**os.environ, "PYTHONPATH": str(root)}
    program = run_program(sys.executable, path, "wait", env=env)
    pids = json.loads(program.stdout.readline())
    assert not any("/dev/shm" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)
    program.send_signal(signal.SIGKILL if how == "killed" else signal.SIGINT)
    program.communicate()
    wait_until_gone(pids)


def test_the_runtimes_python_gives_the_same_batches(tmp_path, root, in_runtime):
    values = {f"{i:08d}": records.raw(records.pixels(i, 3, 9, 11), i) for i in range(7)}
    extra = {
        "7": records.floats(records.pixels(7, 3, 9, 11) / 3, 7),
        "8": records.encoded(records.pixels(8, 3, 9, 11), 8, "png"),
    }
    path = records.write(tmp_path / "db", {**values, **extra})
    here = subprocess.run(
        [sys.executable, str(PROGRAM), path, "digest"],
        env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    there = in_runtime([str(PROGRAM), path, "digest"])
    assert json.loads(here.stdout) == json.loads(there.stdout)
    assert len(set(json.loads(here.stdout))) == 3


def test_data_far_larger_than_memory(tmp_path, in_runtime):
    """300 MB pass through a process that may have 64 MiB more private memory than Python itself."""
    values = ((f"{i:08d}", records.raw(np.full((3, 256, 256), i % 256, np.uint8), i)) for i in range(1600))
    path = records.write(tmp_path / "db", values)
    assert (Path(path) / "data.mdb").stat().st_size > 300e6
    peak = json.loads(in_runtime([str(PROGRAM), path, "limited"]).stdout)
    assert peak["RssAnon"] < 64 << 20
    assert peak["RssFile"] < 200 << 20
