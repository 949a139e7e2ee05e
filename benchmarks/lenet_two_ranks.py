"""Claim: two ranks train LeNet at 1.7 times the speed of one, or more: same batch per rank, one BLAS thread each.

Needs two cores. Runs alternate; images a second over all ranks, third quartiles of the speeds over ten steps at a time
(see measure.undisturbed). The peer is what the machine itself gives: two `caffe train` at once, which exchange nothing,
against one (`machine_ratio`).
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

import measure


def together(count: int, place: measure.Course, iterations: int, blas: str) -> list[float]:
    """Images a second of so many independent `caffe train` at once, all their slices times their number."""
    with ThreadPoolExecutor(count) as pool:
        each = pool.map(lambda _: measure.caffe(place, iterations, blas), range(count))
        return [count * speed for speeds in each for speed in speeds]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    runs: dict[int, list[measure.Run]] = {1: [], 2: []}
    peers: dict[int, list[float]] = {1: [], 2: []}
    with measure.course() as place:
        blas = measure.blas_core(place)
        for _ in range(given.repeats):
            for ranks, done in runs.items():
                done.append(measure.grid(place, given.iterations, ranks, blas))
                peers[ranks].extend(together(ranks, place, given.iterations, blas))
    speeds = {ranks: [speed for run in done for speed in run.speeds] for ranks, done in runs.items()}
    speed = {ranks: measure.undisturbed(each) for ranks, each in speeds.items()}
    last = [line for line in runs[2][-1].metrics if line["kind"] == "ranks"][-1]
    measure.show(
        "LeNet, two ranks against one, each with batch 64: images a second over all ranks",
        "ratio >= 1.7",
        ratio=round(speed[2] / speed[1], 3),
        ratio_of_medians=round(measure.median(speeds[2]) / measure.median(speeds[1]), 3),
        machine_ratio=round(measure.undisturbed(peers[2]) / measure.undisturbed(peers[1]), 3),
        one_rank_images_per_second=speed[1],
        two_ranks_images_per_second=speed[2],
        shares={name: last[name] for name in ("data", "compute", "exchange")},
        transport=runs[2][-1].record["versions"]["mpi"],
        iterations=given.iterations,
        repeats=given.repeats,
        records=place.records,
        blas=blas,
    )


if __name__ == "__main__":
    main()
