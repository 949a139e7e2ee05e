"""metrics.jsonl: which lines are in it, and the picture that is made of them."""

from __future__ import annotations

import json
import math
import time

import gangs
import pytest

from caffe_on_grid.metrics import jsonl, report
from caffe_on_grid.spec import report as reports


class Log:
    """A MetricsLog and what it has put."""

    def __init__(self):
        self.put = []
        self.log = jsonl.MetricsLog(self.put.append)

    @property
    def lines(self):
        assert all(line.endswith("\n") for line in self.put)
        return [json.loads(line) for line in self.put]


def test_rank_0s_lines_and_the_line_over_all_ranks():
    kept = Log()
    state = gangs.gang(2, steps=10)
    kept.log.gang("train", "RUN", 1.0)
    kept.log.report(gangs.started(0), state)
    kept.log.report(gangs.started(1), state)
    kept.log.report(gangs.stepped(0, 10, 5.0, 320, loss=math.nan), state)
    kept.log.report(gangs.stepped(1, 10, 5.5, 320), state)
    kept.log.report(reports.Failed(1, 9.0, 10, "TrainingFailed", "x"), state)
    kept.log.ended("failed", 1, 10.0)
    assert [(line["kind"], line.get("rank")) for line in kept.lines] == [
        ("gang", None),
        ("started", 0),
        ("stepped", 0),
        ("ranks", None),
        ("failed", 1),
        ("ended", None),
    ]
    assert kept.lines[2]["loss"] == "nan"
    over_all = kept.lines[3]
    assert over_all["images_per_second"] == pytest.approx(64 + 64 / 1.1, abs=1e-3)
    assert over_all["per_rank"]["images_per_second"] == {"min": 58.1818, "min_rank": 1, "max": 64.0, "max_rank": 0}
    assert (over_all["iteration"], over_all["samples"], over_all["exchanged_bytes"]) == (10, 640, 2000)


def test_a_line_that_is_being_written_is_left_out():
    assert list(jsonl.read(['{"kind": "gang"}\n', '{"kind": "ste'])) == [{"kind": "gang"}]


def lines():
    found = [{"kind": "gang", "task": "train", "run_id": "RUN"}]
    for i in range(0, 101, 5):
        found.append({"kind": "stepped", "rank": 0, "iteration": i, "loss": 2 / (i + 1), "lr": 0.1 if i < 50 else 0.01})
    for i in (0, 50, 100):
        found.append({"kind": "tested", "iteration": i, "net": 0, "outputs": {"accuracy": [i / 101], "loss": [1.0]}})
    found.append({"kind": "gang", "task": "test", "run_id": "RUN"})
    found.append({"kind": "tested", "iteration": 7, "net": 0, "outputs": {"accuracy": [0.5]}})
    return found


def test_curves():
    found = report.curves(lines())
    assert (found.run_id, len(found.loss[0]), found.lr[1][-1]) == ("RUN", 21, 0.01)
    assert found.accuracies == {"accuracy": ([0, 50, 100], [0.0, 50 / 101, 100 / 101])}
    assert list(found.losses) == ["loss"]
    assert report.title(found) == "RUN   ·   accuracy 99.01%"


def test_a_curve_of_days_is_thinned():
    """Half an hour went into smoothing a million points, after the training had ended."""
    steps = ({"kind": "stepped", "iteration": i, "loss": i % 2, "lr": 0.1} for i in range(100_000))
    found = report.curves(steps)
    assert (len(found.loss[0]), len(found.lr[1]), found.loss[0][:3]) == (5000, 5000, [0, 20, 40])
    assert set(found.loss[1]) == {0.5}
    began = time.monotonic()
    report.smooth(found.loss[1])
    assert time.monotonic() - began < 5


def test_smoothing_is_a_mean_around_each_value_without_nan():
    assert report.smooth([1.0, 2.0, math.nan, 4.0, 5.0]) == pytest.approx([1.5, 7 / 3, 3.0, 11 / 3, 4.5])
    assert all(map(math.isnan, report.smooth([math.nan] * 3)))


@pytest.mark.parametrize("count", [24, 1], ids=["a run", "a run that ended before its first step"])
def test_the_picture(tmp_path, count):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines()[:count]))
    assert report.main([str(metrics), str(tmp_path / "curves.png")]) == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_wrong_call_says_how(capsys):
    assert report.main([]) == 2
    assert "METRICS PICTURE" in capsys.readouterr().err
