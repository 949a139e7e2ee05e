"""States to try words and rates on."""

from __future__ import annotations

from caffe_on_grid.metrics.state import GangState, RankState
from caffe_on_grid.spec import report as reports


def started(rank: int, **changes) -> reports.Started:
    values = {
        "rank": rank,
        "time": 0.0,
        "host": f"node-{rank}",
        "pid": 100 + rank,
        "engine": "caffe 1.0.0",
        "mode": "cpu",
        "blas": "SkylakeX, 1 thread",
        "transport": "MPICH 4.3.2",
        "parameters": 431080,
        "batch": 32,
        "records": 60000,
        "first_iteration": 0,
        "max_iterations": 1000,
    }
    return reports.Started(**{**values, **changes})


def stepped(rank: int, iteration: int, seconds: float, samples: int, **changes) -> reports.Stepped:
    values = {
        "loss": 0.5,
        "outputs": {"loss": (0.5,)},
        "lr": 0.01,
        "data_s": seconds * 0.1,
        "compute_s": seconds * 0.6,
        "exchange_s": seconds * 0.25,
        "exchanged_bytes": iteration * 100,
    }
    return reports.Stepped(rank, 1000.0 + seconds, iteration, samples=samples, seconds=seconds, **{**values, **changes})


def gang(world: int = 2, steps: int = 0, task: str = "train") -> GangState:
    """`world` ranks, one on each executor, that made `steps` steps of 0.5 s; rank r is 10 % slower per r."""
    state = GangState(task, world)
    for r in range(world):
        state.joined[r] = {"executor": r, "host": f"node-{r}", "pid": 10 + r, "cpus": 4}
        state.ranks[r] = RankState(r, r, f"node-{r}", 0, f"cpu {r}", 0.0, started=started(r))
        for i in range(1, steps + 1):
            state.ranks[r].step(stepped(r, i, i * 0.5 * (1 + r / 10), i * 32))
    return state
