"""The reducer, table by table: messages in, state and failures out."""

from __future__ import annotations

import pytest

from caffe_on_grid.driver import monitor as monitors
from caffe_on_grid.driver.monitor import Monitor
from caffe_on_grid.spec import report as reports


def place(rank: int) -> dict:
    return {
        "rank": rank,
        "executor": rank,
        "host": f"node-{rank}",
        "local_rank": 0,
        "device": {"kind": "gpu", "index": 1},
    }


def gang(world: int, placed: bool = True) -> Monitor:
    monitor = Monitor("train", world, 0.0)
    for i in range(world):
        monitor.message({"type": "joined", "executor": i, "host": f"node-{i}", "pid": i, "cpus": 1, "devices": []}, 1.0)
    if placed:
        places = [place(r) for r in range(world)]
        monitor.message({"type": "placed", "ranks": places, "runtime": {}, "notes": ["more ranks than cores"]}, 1.0)
    return monitor


def report(monitor: Monitor, value: reports.Report, now: float = 2.0) -> list[reports.Report]:
    return monitor.message({"type": "report", "line": reports.to_line(value)}, now)


def beat(monitor: Monitor, rank: int, iteration: int, phase: str, age_s: float, now: float) -> None:
    ranks = [{"rank": rank, "iteration": iteration, "phase": phase, "age_s": age_s}]
    monitor.message({"type": "beat", "executor": rank, "ranks": ranks}, now)


def test_who_came_and_where_ranks_are():
    monitor = gang(2)
    assert monitor.complete
    assert monitor.state.ranks[1].device == "gpu 1"
    assert monitor.state.remarks == ["more ranks than cores"]
    assert not Monitor("train", 2, 0.0).complete


def test_an_unknown_message_is_a_bug():
    with pytest.raises(ValueError, match="unknown message 'hello'"):
        gang(1).message({"type": "hello"}, 1.0)


def test_reports_that_overtake_the_placement_are_kept():
    monitor = gang(2, placed=False)
    early = reports.Checked(1, 5.0, 10, "aa")
    assert report(monitor, early) == []
    assert monitor.message({"type": "placed", "ranks": [place(0), place(1)]}, 3.0) == [early]
    report(monitor, reports.Checked(0, 5.0, 10, "aa"))
    assert (monitor.state.checks, monitor.failures) == (1, [])


@pytest.mark.parametrize(
    ("digests", "odd"),
    [
        ("aaaa", []),
        ("aaba", [2]),
        ("baaa", [0]),
        ("ab", [1]),
        ("aabb", [2, 3]),
        ("abc", [1, 2]),
    ],
)
def test_the_ranks_that_differ_are_named(digests, odd):
    assert monitors.differing(dict(enumerate(digests))) == odd
    monitor = gang(len(digests))
    for rank, digest in enumerate(digests):
        assert not monitor.failures, "no judgement before all ranks have spoken"
        report(monitor, reports.Checked(rank, 5.0, 10, digest))
    assert monitor.state.checks == (not odd)
    if odd:
        assert monitor.cause.rank == odd[0]
        named = ", ".join(f"rank {r} on node-{r}" for r in odd)
        assert f"after iteration 10: {named} differ" in monitor.cause.message


def test_digests_of_several_iterations_do_not_mix():
    monitor = gang(2)
    for rank, iteration, digest in ((0, 10, "a"), (0, 20, "b"), (1, 10, "a"), (1, 20, "b")):
        report(monitor, reports.Checked(rank, 5.0, iteration, digest))
    assert (monitor.state.checks, monitor.failures) == (2, [])


def failed(rank: int, time: float) -> reports.Failed:
    return reports.Failed(rank, time, 3, "DataError", f"rank {rank} at {time}", f"node-{rank}")


def test_the_earliest_failure_is_the_cause_whatever_comes_first():
    monitor = gang(3)
    report(monitor, failed(1, 10.5))
    monitor.lost(2, 10.2, "its connection ended")
    assert monitor.cause.message == "executor 2 on node-2 was lost: its connection ended"
    report(monitor, failed(0, 10.0))
    assert monitor.cause.message == "rank 0 at 10.0"


def test_an_executor_that_said_that_it_leaves_is_not_lost():
    monitor = gang(2)
    monitor.message({"type": "left", "executor": 1, "ok": True}, 5.0)
    monitor.lost(1, 5.0, "its connection ended")
    assert monitor.failures == []
    assert "ended without a last report" in monitor.unfinished()


def test_a_gang_is_finished_when_all_ranks_are():
    monitor = gang(2)
    for rank in (0, 1):
        assert monitor.unfinished()
        report(monitor, reports.Finished(rank, 9.0, 5, "aa", 10, 0, 0, 100))
    assert monitor.unfinished() is None
    assert monitor.state.digest == "aa"


def test_a_gang_stalls_when_no_rank_moves():
    monitor = gang(3)
    for rank, phase in enumerate(("exchange", "data", "exchange")):
        beat(monitor, rank, 7, phase, 0.0, now=10.0)
    assert monitor.stalled(19.9, 0.0, 10.0) is None
    assert monitor.stalled(20.0, 123.0, 10.0) == reports.Failed(
        1,
        123.0,
        7,
        "TrainingFailed",
        "no rank has moved for 10 s; lagging: rank 1 on node-1 (iteration 7, data); "
        "--step-timeout sets how long a step may take",
        "node-1",
    )


MOVES = [
    ("the next iteration", lambda m: beat(m, 0, 8, "exchange", 99.0, 15.0), 25.0),
    ("another phase", lambda m: beat(m, 0, 7, "data", 99.0, 15.0), 25.0),
    ("a touched progress file", lambda m: beat(m, 0, 7, "exchange", 2.0, 15.0), 23.0),
    ("an old progress file", lambda m: beat(m, 0, 7, "exchange", 12.0, 15.0), 20.0),
    ("a report", lambda m: report(m, reports.Remarked(0, 0.0, "x"), 15.0), 25.0),
]


@pytest.mark.parametrize(("move", "until"), [m[1:] for m in MOVES], ids=[m[0] for m in MOVES])
def test_what_counts_as_movement(move, until):
    monitor = gang(1)
    beat(monitor, 0, 7, "exchange", 0.0, now=10.0)
    move(monitor)
    assert monitor.stalled(until - 0.1, 0.0, 10.0) is None
    assert monitor.stalled(until, 0.0, 10.0) is not None


@pytest.mark.parametrize(
    ("ranks", "lagging"),
    [
        ([(5, "exchange"), (4, "compute")], [1]),
        ([(5, "exchange"), (5, "exchange")], [0, 1]),
        ([(5, "test"), (5, "exchange"), (5, "data")], [0, 2]),
        ([(9, "done"), (5, "exchange")], [1]),
        ([(9, "done"), (9, "done")], [0, 1]),
    ],
)
def test_the_ranks_that_lag(ranks, lagging):
    monitor = gang(len(ranks))
    for rank, (iteration, phase) in enumerate(ranks):
        beat(monitor, rank, iteration, phase, 0.0, 2.0)
    assert [r.rank for r in monitors.laggards(monitor.state)] == lagging
