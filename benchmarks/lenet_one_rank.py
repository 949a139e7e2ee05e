"""Claim: one rank through the whole command trains LeNet at 0.95 of the speed of `caffe train` itself, or more.

Same runtime, same records, same settings, one BLAS thread each; runs alternate; medians.
"""

from __future__ import annotations

import argparse

import measure


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    ours, theirs, walls = [], [], []
    with measure.course() as place:
        blas = measure.blas_core(place)
        for _ in range(given.repeats):
            theirs.append(measure.caffe(place, given.iterations, blas))
            run = measure.grid(place, given.iterations, 1, blas)
            ours.append(run.images_per_second)
            walls.append(run.wall_s)
    measure.show(
        "LeNet, one rank through the command against caffe train: images a second",
        "ratio >= 0.95",
        ratio=round(measure.median(ours) / measure.median(theirs), 3),
        images_per_second=measure.median(ours),
        caffe_images_per_second=measure.median(theirs),
        command_seconds=measure.median(walls),
        iterations=given.iterations,
        repeats=given.repeats,
        records=place.records,
        blas=blas,
    )


if __name__ == "__main__":
    main()
