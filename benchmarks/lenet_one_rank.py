"""Claim: one rank through the whole command trains LeNet at 0.95 of the speed of `caffe train` itself, or more.

Same runtime, same records, same settings, one BLAS thread each. Runs alternate, each going first every second time;
their speeds over ten steps at a time are put together, and the third quartiles compared (see measure.undisturbed).
"""

from __future__ import annotations

import argparse

import measure


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=8)
    given = parser.parse_args()
    ours: list[float] = []
    theirs: list[float] = []
    walls: list[float] = []
    with measure.course() as place:
        blas = measure.blas_core(place)

        def command() -> None:
            run = measure.grid(place, given.iterations, 1, blas)
            ours.extend(run.speeds)
            walls.append(run.wall_s)

        def caffe() -> None:
            theirs.extend(measure.caffe(place, given.iterations, blas))

        for turn in range(given.repeats):
            for one in (caffe, command) if turn % 2 == 0 else (command, caffe):
                one()
    measure.show(
        "LeNet, one rank through the command against caffe train: images a second",
        "ratio >= 0.95",
        ratio=round(measure.undisturbed(ours) / measure.undisturbed(theirs), 3),
        ratio_of_medians=round(measure.median(ours) / measure.median(theirs), 3),
        images_per_second=measure.undisturbed(ours),
        caffe_images_per_second=measure.undisturbed(theirs),
        command_seconds=measure.median(walls),
        iterations=given.iterations,
        repeats=given.repeats,
        records=place.records,
        blas=blas,
    )


if __name__ == "__main__":
    main()
