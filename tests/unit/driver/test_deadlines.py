"""The driver's deadlines count what the ranks do, not how long the driver itself was held up."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from caffe_on_grid.comm.channel import Closed, Listener, dial
from caffe_on_grid.driver.inbox import Inbox
from caffe_on_grid.driver.monitor import Monitor
from caffe_on_grid.driver.stage import Limits, _Gang
from caffe_on_grid.spec.report import Finished, to_line

KEY = b"k" * 32
PLACE = {"rank": 0, "executor": 0, "host": "h", "local_rank": 0, "device": "cpu 0"}


class Held:
    """An observer whose terminal takes nothing for a while: in a tick, or in a report."""

    def __init__(self, where: str, seconds: float) -> None:
        self.where, self.seconds, self.held = where, seconds, False

    def _hold(self, where: str) -> None:
        if where == self.where and not self.held:
            self.held = True
            time.sleep(self.seconds)

    def report(self, report, state) -> None:
        self._hold("report")

    def tick(self, state) -> None:
        if state.world:
            self._hold("tick")


@pytest.fixture
def beating():
    """Starts an executor that says every few moments that its rank moves, until `stop` is set."""
    listener = Listener("127.0.0.1", KEY)
    inbox, stop = Inbox(listener), threading.Event()
    inbox.start()

    def beat() -> None:
        channel = dial(listener.address, KEY, 5)
        channel.send({"type": "joined", "executor": 0, "host": "h", "pid": 1, "cpus": 1})
        channel.send({"type": "placed", "ranks": [PLACE]})
        remark = '{"kind": "remarked", "rank": 0, "time": 1.0, "message": "so it is"}'
        channel.send({"type": "report", "line": remark})
        while not stop.wait(0.05):
            ranks = [{"rank": 0, "iteration": 1, "phase": "compute", "age_s": 0.0}]
            channel.send({"type": "beat", "executor": 0, "ranks": ranks})
        with suppress(Closed):
            channel.receive(20)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    yield inbox, stop
    stop.set()
    inbox.close()
    thread.join(10)


@pytest.mark.parametrize("where", ["tick", "report"])
def test_a_driver_that_was_held_up_takes_no_rank_for_stalled(beating, where):
    """It once ended a gang that was well: the beats of the meantime were still to be read."""
    inbox, stop = beating
    monitor, observer = Monitor("train", 1, time.monotonic()), Held(where, 1.8)
    gang = _Gang(None, inbox, monitor, Limits(gang_s=9.0, step_s=1.2), observer)  # type: ignore[arg-type]
    until = time.monotonic() + 2.6
    while time.monotonic() < until:
        gang._next(0.05)
        gang._check_deadlines()
    assert observer.held
    assert monitor.failures == []
    stop.set()
    while not monitor.failures:
        gang._next(0.05)
        gang._check_deadlines()
        assert time.monotonic() < until + 5
    assert "no rank has moved for 1.2 s" in monitor.failures[0].message


def test_work_that_is_done_stays_done_though_an_executor_does_not_leave():
    """A store that took the logs slowly made a training fail that had written its model."""
    told, monitor = Told(), Monitor("train", 1, 100.0)
    gang = _Gang(None, None, monitor, Limits(gang_s=5.0, step_s=60.0), told)  # type: ignore[arg-type]
    finished = Finished(0, 1.0, 5, "ab", 10, 0, 0, 1)
    for message in (
        {"type": "joined", "executor": 0, "host": "h", "pid": 1, "cpus": 1},
        {"type": "placed", "ranks": [PLACE]},
        {"type": "report", "line": to_line(finished)},
    ):
        monitor.message(message, 100.0)
    gang._heard = 159.0
    assert not gang._over()
    gang._heard = 161.0
    gang._check_deadlines()
    assert monitor.failures == []
    assert gang._over()
    assert monitor.unfinished() is None
    assert told.said == monitor.state.remarks
    assert told.said == ["the gang did not end within 60 s of its work; executors still busy: 0"]


class Told:
    """An observer of remarks."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def report(self, report, state) -> None:
        self.said.append(report.message)

    def tick(self, state) -> None:
        """Nothing to show."""


def test_a_driver_that_was_held_up_misses_nobody_who_has_come(beating):
    inbox, _ = beating
    gang = _Gang(None, inbox, Monitor("train", 1, time.monotonic()), Limits(1.2, 9.0), Held("", 0))  # type: ignore[arg-type]
    time.sleep(1.5)
    gang._next(0.05)
    gang._check_deadlines()
    assert gang._monitor.complete
