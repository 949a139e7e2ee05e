"""run.json: what goes in comes out, and what does not belong is named."""

from __future__ import annotations

import json
import math

import pytest

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec import run
from caffe_on_grid.spec.job import DataSpec, JobSpec


def record(**changes) -> run.RunRecord:
    values = {
        "run_id": "20260101-000000-abc123",
        "outcome": "running",
        "started": "2026-01-01T00:00:00Z",
        "run_folder": "file:/m/net/20260101-000000-abc123",
        "seed": 7,
        "job": JobSpec(
            ("train",), "solver.prototxt", data=DataSpec(input="/d"), origins={"data.input": "option -input"}
        ),
        "versions": run.Versions("0.1.0", "3.11.7"),
    }
    return run.RunRecord(**{**values, **changes})


FULL = record(
    outcome="failed",
    exit_code=1,
    ended="2026-01-01T00:01:00Z",
    cause=run.Cause("TrainingFailed", "loss is nan", 1, "node-1", 42, ("F0101 Check failed",), "/logs/rank-1.log"),
    tasks=(
        run.TaskRecord(
            "train",
            2,
            128,
            (run.ExecutorRecord(0, "node-0", 4242, 8),),
            (run.RankRecord(0, 0, "node-0", 0, "gpu 0", 4250, 41, 312),),
            (run.LastTest(0, 40, {"accuracy": (0.98,), "loss": (0.1, 0.2)}, 100),),
            ("file:/m/net/snapshots/net_iter_40.json",),
            "ab" * 32,
            run.Totals(41, 5248, 60.5, 90.0, 1 << 33, 3),
            ("unset solver_mode: CPU is taken",),
        ),
    ),
)


@pytest.mark.parametrize("value", [record(), FULL], ids=["running", "failed"])
def test_round_trip(value):
    assert run.loads(run.dumps(value)) == value


def test_numbers_that_json_lacks_survive():
    tests = (run.LastTest(0, 1, {"loss": (math.nan, math.inf, -math.inf, 1.5)}, 1),)
    text = run.dumps(record(tasks=(run.TaskRecord("train", tests=tests),)))
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    values = run.loads(text).tasks[0].tests[0].outputs["loss"]
    assert math.isnan(values[0])
    assert values[1:] == (math.inf, -math.inf, 1.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outcom": "done"}, "unknown key 'outcom' (did you mean 'outcome'?)"),
        ({"outcome": "fine"}, "unknown outcome 'fine'; known: running, done, failed, interrupted"),
        ({"exit_code": "1"}, "exit_code: expected int, got str '1'"),
        ({"tasks": [{"task": "train", "tests": 3}]}, "tasks[0].tests: expected list"),
    ],
)
def test_what_does_not_belong_is_named(change, words):
    text = json.dumps({**json.loads(run.dumps(record())), **change})
    with pytest.raises(ConfigError) as error:
        run.loads(text, "/r/run.json")
    assert words in str(error.value)
    assert str(error.value).startswith("/r/run.json")
