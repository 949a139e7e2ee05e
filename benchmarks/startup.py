"""Claims: `--help` answers within 0.3 s; from the barrier stage's start to the end of the first step, 6 s or less.

Two ranks on LeNet. Peer of `--help`: an empty program of the same Python.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import measure


def seconds(command: list[str]) -> float:
    """Wall-clock of a program."""
    begin = time.perf_counter()
    measure.call(command, measure.ROOT, os.environ)
    return time.perf_counter() - begin


def first_step(run: measure.Run) -> float:
    """From the gang's line in metrics.jsonl to rank 0's report of its first step."""
    begin = next(line["time"] for line in run.metrics if line["kind"] == "gang")
    return float(next(line["time"] for line in run.metrics if line["kind"] == "stepped") - begin)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    helps, empties, verbs, steps, walls = [], [], [], [], []
    with measure.course() as place:
        blas = measure.blas_core(place)
        for _ in range(given.repeats):
            empties.append(seconds([sys.executable, "-c", "pass"]))
            helps.append(seconds([measure.COMMAND, "--help"]))
            verbs.append(seconds([measure.COMMAND, "train", "--help"]))
            run = measure.grid(place, 1, 2, blas)
            steps.append(first_step(run))
            walls.append(run.wall_s)
    measure.show(
        "seconds until --help is shown, and from the barrier stage's start to the end of the first step",
        "help <= 0.3, first_step <= 6",
        help=measure.median(helps),
        train_help=measure.median(verbs),
        empty_python=measure.median(empties),
        first_step=measure.median(steps),
        command=measure.median(walls),
        repeats=given.repeats,
        ranks=2,
        records=place.records,
    )


if __name__ == "__main__":
    main()
