from __future__ import annotations

import pytest

from caffe_on_grid.gang import post_mortem
from caffe_on_grid.gang.post_mortem import Death
from caffe_on_grid.gang.watch import Beat, Ranks
from caffe_on_grid.spec.report import Failed, Finished, Progress, Started

STARTED = Started(0, 1.0, "node", 1, "caffe", "cpu", "", "none", 1, 1, 1, 100, 200)
FINISHED = Finished(0, 2.0, 200, "d", 1, 0, 0, 1)


def failed(rank, time):
    return Failed(rank, time, 5, "DataError", "why")


def test_the_last_word_is_the_first_final_one():
    ranks = Ranks([0, 1])
    ranks.note(STARTED)
    ranks.note(FINISHED)
    ranks.note(failed(0, 3.0))
    assert ranks.states[0].finished
    assert [s.rank for s in ranks.undecided()] == [1]
    assert not ranks.all_finished()
    ranks.note(failed(1, 4.0))
    assert ranks.failure() == failed(1, 4.0)


def test_the_earliest_failure_is_the_cause():
    ranks = Ranks([0, 1])
    assert ranks.failure() is None
    ranks.note(failed(1, 9.0))
    ranks.note(failed(0, 8.0))
    assert ranks.failure() == failed(0, 8.0)


def test_a_resumed_rank_has_stepped_only_beyond_where_it_began():
    ranks = Ranks([0])
    state = ranks.states[0]
    state.progress = Progress(100, "compute", 1.0)
    assert not state.stepped
    ranks.note(STARTED)
    assert not state.stepped
    state.progress = Progress(101, "compute", 1.0)
    assert state.stepped


def test_a_rank_that_has_not_moved_is_as_old_as_the_gang():
    ranks = Ranks([3])
    assert ranks.beats(now=50.0, since=40.0) == [Beat(3, 0, "starting", 10.0)]
    ranks.states[3].progress = Progress(7, "data", 48.0)
    assert ranks.beats(now=50.0, since=40.0) == [Beat(3, 7, "data", 2.0)]


CHECK = (
    "F1129 18:45:10.123456  4711 layer_factory.hpp:81] Check failed: registry.count(type) == 1 Unknown layer type: X"
)
DEVICE = "F1129 18:45:10.123456  4711 common.cpp:66] Cannot use GPU in CPU-only Caffe: check mode."


@pytest.mark.parametrize(
    ("death", "lines", "category", "part"),
    [
        (
            Death(-6, 0, False, False),
            (CHECK, "*** stack"),
            "ConfigError",
            "before its first step: layer_factory.hpp:81]",
        ),
        (Death(-6, 7, True, True), (CHECK,), "TrainingFailed", "at iteration 7: layer_factory.hpp:81] Check failed"),
        (Death(-6, 0, False, False), (DEVICE,), "EnvironmentFault", "Cannot use GPU in CPU-only Caffe"),
        (Death(-9, 7, True, True), (), "TrainingFailed", "killed by SIGKILL (most likely out of memory"),
        (Death(-11, 7, True, True), ("last",), "TrainingFailed", "was ended by SIGSEGV at iteration 7: last"),
        (Death(-40, 7, True, True), (), "TrainingFailed", "was ended by "),
        (Death(3, 0, False, True), (), "EnvironmentFault", "exit code 3 before its first step"),
        (
            Death(1, 0, False, False),
            ("x", "ModuleNotFoundError: No module named 'caffe'"),
            "EnvironmentFault",
            "'caffe'",
        ),
        (Death(None, 7, True, True), (), "TrainingFailed", "with another part of the gang"),
    ],
)
def test_a_death_is_explained(death, lines, category, part):
    found, message = post_mortem.explain(death, lines)
    assert found == category
    assert part in message
    assert "\n" not in message


def test_native_lines_begin_with_the_fatal_one(tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join(["first", CHECK, *(f"line {i}" for i in range(5000))]) + "\n")
    lines = post_mortem.native_lines(log)
    assert lines[0] == CHECK
    assert lines[-1] == "line 4999"
    assert len(lines) == post_mortem.TAIL + 1
    assert post_mortem.native_lines(tmp_path / "none") == ()
