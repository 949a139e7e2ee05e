"""Signals in the driver: noted while it writes, raised where it waits, and no fault of a storage's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from caffe_on_grid.driver.signals import Signals
from caffe_on_grid.errors import SIGNALS, GridError, Interrupted, Signalled, Terminated
from caffe_on_grid.storage import fsspec_store, hdfs_http, hdfs_rpc


@pytest.fixture
def signals() -> Iterator[Signals]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    made = Signals()
    made.install()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_write_is_finished_before_the_signal_is_raised(signals: Signals, number: int) -> None:
    written = []
    signals.check()
    for piece in ("half ", "a line\n"):
        os.kill(os.getpid(), number)
        written.append(piece)
    assert "".join(written) == "half a line\n"
    with pytest.raises(SIGNALS[number], match=f"ended by {signal.Signals(number).name}"):
        signals.check()


def test_the_first_signal_counts(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Terminated):
        signals.check()


def test_where_the_driver_waits_it_is_raised_at_once(signals: Signals) -> None:
    with pytest.raises(Signalled) as raised, signals.at_once():
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    assert type(raised.value.error) is Interrupted
    assert not isinstance(raised.value, Exception)


def test_one_that_came_before_keeps_the_driver_from_waiting(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Terminated), signals.at_once():
        pytest.fail("it waits")


@pytest.mark.parametrize("store", [hdfs_rpc, hdfs_http, fsspec_store])
def test_no_storage_takes_a_signal_for_a_broken_transfer(store) -> None:
    """It once said "the transfer broke off (ended by SIGINT); try again", and tried again."""
    error: GridError = Terminated("ended by SIGTERM")
    with pytest.raises(Signalled) as raised, store._door():
        raise Signalled(error)
    assert raised.value.error is error
