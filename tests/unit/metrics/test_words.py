"""What people read, line by line."""

from __future__ import annotations

import io
import math
import subprocess
import sys

import gangs
import pytest

from caffe_on_grid.metrics import progress, words
from caffe_on_grid.spec import report as reports
from caffe_on_grid.spec import run
from caffe_on_grid.spec.job import JobSpec


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (words.number, 1.223914, "1.22391"),
        (words.number, 1e-5, "1e-05"),
        (words.number, math.nan, "nan"),
        (words.number, -math.inf, "-inf"),
        (words.quantity, 1234567.8, "1,234,568"),
        (words.size, 512, "512 B"),
        (words.size, 1536, "1.5 KiB"),
        (words.size, 5 << 40, "5.0 TiB"),
        (words.size, 5 << 50, "5120.0 TiB"),
        (words.duration, 0.4, "0 s"),
        (words.duration, 59.6, "1:00"),
        (words.duration, 125, "2:05"),
        (words.duration, 3725, "1:02:05"),
    ],
)
def test_numbers(function, value, text):
    assert function(value) == text


def test_displayed_iterations_read_as_caffes():
    report = gangs.stepped(0, 101, 5.0, 320, loss=1.223914, outputs={"loss": (1.2,), "top": (0.5, 0.25)})
    assert words.iteration_lines(report, {"loss": 0.5}) == [
        "Iteration 100, loss = 1.22391",
        "    Train net output #0: loss = 1.2 (* 0.5 = 0.6 loss)",
        "    Train net output #1: top = 0.5",
        "    Train net output #2: top = 0.25",
        "Iteration 100, lr = 0.01",
    ]


def test_tests_read_as_caffes():
    report = reports.Tested(0, 0.0, 500, 1, {"accuracy": (0.98,), "loss": (0.061,)}, 100, 2.0)
    assert words.test_lines(report, {"loss": 1.0, "accuracy": 0.0}) == [
        "Iteration 500, Testing net (#1)",
        "    Test net output #0: accuracy = 0.98",
        "    Test net output #1: loss = 0.061 (* 1 = 0.061 loss)",
    ]


def test_the_progress_line_says_all():
    state = gangs.gang(2, steps=20)
    state.tests[0] = reports.Tested(0, 0.0, 10, 0, {"accuracy": (0.98,)}, 100, 2.0)
    assert words.progress_line(state) == (
        "20/1000 | loss 0.5 | test accuracy = 0.98 | lr 0.01 | 122 images/s | "
        "data 10%, compute 60%, exchange 25%, other 5% | 8:10 left"
    )
    assert words.progress_line(gangs.gang(2)) is None


def test_the_banner_says_who_runs_what():
    state = gangs.gang(2)
    state.remarks.append("solver_mode is unset: the CPU is taken")
    assert words.banner(state, "RUN", "allreduce", "/m/net/RUN", "/m/net.caffemodel") == [
        "run:       RUN (train)",
        "world:     2 ranks = 2 executors × 1 device",
        "executors: node-0 (pid 10), node-1 (pid 11)",
        "engine:    caffe 1.0.0, cpu, 431,080 parameters",
        "BLAS:      SkylakeX, 1 thread",
        "transport: MPICH 4.3.2",
        "sync:      allreduce",
        "batch:     64 records per step = 32 (batch_size × iter_size) × 2 ranks",
        "records:   60,000; 1,000 iterations make 1.06667 epochs",
        "results:   /m/net.caffemodel, /m/net/RUN",
        "remark:    solver_mode is unset: the CPU is taken",
    ]


def test_the_banner_of_a_test_speaks_of_batches():
    lines = words.banner(gangs.gang(1, task="test"), "RUN", "none (one rank)", "/f", None)
    assert "batch:     32 records, batches dealt out to 1 rank" in lines
    assert "records:   60,000" in lines


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (run.Cause("ConfigError", "net.prototxt:3:1: unknown layer"), "error: net.prototxt:3:1: unknown layer"),
        (
            run.Cause("TrainingFailed", "the rank died", 1, "node-1", 42, ("x", " F0101 Check failed: y"), "/l/r"),
            "error: rank 1 on node-1 at iteration 42: the rank died; log: /l/r",
        ),
        (run.Cause("TrainingFailed", "died: F01 Check", 0, "h", 1, ("F01 Check",)),
         "error: rank 0 on h at iteration 1: died: F01 Check"),
    ],
)  # fmt: skip
def test_a_failure_is_one_line(cause, text):
    assert words.failure_line(cause) == text


def test_the_summary():
    task = run.TaskRecord(
        "train",
        2,
        64,
        tests=(run.LastTest(0, 1000, {"accuracy": (0.991,)}, 100),),
        digest="0123456789abcdef" * 4,
        totals=run.Totals(1000, 64000, 65.0, 984.6, 3 << 20, 2),
    )
    tests = (run.LastTest(0, 0, {"accuracy": (0.99,)}, 100),)
    tested = run.TaskRecord("test", 2, 200, tests=tests, totals=run.Totals(0, 10000, 6.0))
    job = JobSpec(("train", "test"), "s")
    record = run.RunRecord("R", "done", "t", "/f", 1, job, run.Versions("0", "3"), exit_code=0, tasks=(task, tested))
    assert words.summary(record, ["/m.caffemodel", "/f/run.json"]) == [
        "outcome:   done (exit code 0)",
        "train:     1,000 iterations in 1:05, 985 images/s while stepping, 3.0 MiB exchanged",
        "test:      iteration 1000, net #0: accuracy = 0.991",
        "digest:    0123456789abcdef… equal on 2 ranks",
        "skipped:   2 undecodable records",
        "test:      10,000 records in 6 s",
        "test:      100 batches, net #0: accuracy = 0.99",
        "left:      /m.caffemodel",
        "left:      /f/run.json",
    ]


class Screen(io.StringIO):
    def isatty(self):
        return True


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_plain_writes_caffes_lines_and_now_and_then_progress():
    stream = io.StringIO()
    display = progress.show(stream, {})
    state = gangs.gang(2, steps=20)
    for now in (0.0, 5.0, 10.0, 15.0):
        display.tick(state, now)
    display.report(gangs.stepped(0, 20, 10.0, 640, displayed=True), state)
    display.report(gangs.stepped(1, 20, 10.0, 640, displayed=True), state)
    display.report(gangs.stepped(0, 21, 10.0, 640), state)
    display.close()
    lines = stream.getvalue().splitlines()
    assert [line[:15] for line in lines] == ["20/1000 | loss ", "Iteration 19, l", "    Train net o", "Iteration 19, l"]


def test_plain_says_who_has_come_when_that_changes():
    stream = io.StringIO()
    display = progress.show(stream, {})
    state = gangs.gang(2)
    late = state.joined.pop(1)
    for now in (0.0, 0.2, 0.4):
        display.tick(state, now)
    state.joined[1] = late
    display.tick(state, 0.6)
    assert stream.getvalue() == "1 of 2 executors are here\n"


@pytest.mark.parametrize(("stream", "environ"), [(Screen(), {}), (io.StringIO(), {progress.TERMINAL: "100"})])
def test_a_terminal_is_redrawn(stream, environ):
    display = progress.show(stream, environ)
    assert isinstance(display, progress.Live)
    state = gangs.gang(2, steps=20)
    display.tick(gangs.gang(2), 0.0)
    display.tick(state, 0.2)
    display.report(reports.Tested(0, 0.0, 20, 0, {"accuracy": (0.98,)}, 100, 2.0), state)
    display.close()
    text = stream.getvalue()
    assert "\x1b[" in text
    for part in ("the ranks are starting", "20/1000", "8:10 left", "122", "Test net output #0: accuracy = 0.98"):
        assert part in text


def test_a_reader_that_has_gone_does_not_end_the_job():
    display = progress.show(Gone(), {})
    display.lines(["a", "b"])
    display.tick(gangs.gang(2, steps=20), 100.0)
    display.close()


def test_rich_and_matplotlib_are_loaded_only_when_needed():
    code = (
        "import io, sys; from caffe_on_grid.metrics import progress, report, jsonl; progress.show(io.StringIO(), {})\n"
        "sys.exit(bool({'rich', 'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, cwd=progress.__file__.rsplit("/", 3)[0]).returncode
        == 0
    )
