"""Rates over the window, and the sums over ranks."""

from __future__ import annotations

import gangs
import pytest

from caffe_on_grid.metrics.state import WINDOW_S, rates, seconds_left
from caffe_on_grid.spec import report as reports


def test_rates_are_sums_and_means_over_the_ranks():
    now = rates(gangs.gang(2, steps=10))
    assert now.images_per_second == pytest.approx(64 + 64 / 1.1)
    assert (now.data, now.compute, now.exchange) == pytest.approx((0.1, 0.6, 0.25))
    assert now.iterations_per_second == pytest.approx(2)
    assert [r.images_per_second for r in now.ranks] == pytest.approx([64, 64 / 1.1])


@pytest.mark.parametrize(("steps", "left"), [(0, None), (1, 499.5), (500, 250.0), (1000, 0.0)])
def test_time_left(steps, left):
    assert seconds_left(gangs.gang(1, steps)) == (None if left is None else pytest.approx(left))


def test_the_window_forgets_what_was_long_ago():
    rank = gangs.gang(1).ranks[0]
    for second in range(100):
        rank.step(gangs.stepped(0, second, float(second), second * (1 if second < 50 else 10)))
    assert WINDOW_S <= rank.window[-1].seconds - rank.window[0].seconds < WINDOW_S + 1
    assert len(rank.window) <= WINDOW_S + 2


def test_a_slow_step_keeps_two_reports():
    rank = gangs.gang(1).ranks[0]
    for second in (0.0, 100.0, 200.0):
        rank.step(gangs.stepped(0, int(second), second, int(second)))
    assert [s.seconds for s in rank.window] == [100.0, 200.0]


def test_a_resumed_run_counts_its_own_steps_only():
    state = gangs.gang(1)
    rank = state.ranks[0]
    rank.started = gangs.started(0, first_iteration=500)
    rank.step(gangs.stepped(0, 510, 5.0, 320))
    assert rates(state).iterations_per_second == pytest.approx(2)
    assert seconds_left(state) == pytest.approx(245)


def test_totals():
    state = gangs.gang(2, steps=10)
    assert (state.global_batch, state.samples, state.exchanged_bytes) == (64, 640, 2000)
    assert state.images_per_second == pytest.approx(640 / 5.5)
    assert state.stepped
    assert not gangs.gang(2).stepped


def test_the_digest_is_one_that_all_ranks_share():
    state = gangs.gang(2)
    state.ranks[0].finished = reports.Finished(0, 0.0, 5, "aa", 10, 1, 7, 100)
    assert state.digest is None
    state.ranks[1].finished = reports.Finished(1, 0.0, 5, "aa", 10, 2, 7, 100)
    assert (state.digest, state.skipped, state.exchanged_bytes) == ("aa", 3, 14)
    state.ranks[1].finished = reports.Finished(1, 0.0, 5, "bb", 10, 2, 7, 100)
    assert state.digest is None
