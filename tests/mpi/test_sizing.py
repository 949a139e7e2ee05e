"""The memory estimate against the peak of real ranks: at most 5 % below it, and 30 % above."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caffe_on_grid.proto import graph, schema, shapes, sizing, text, upgrade

pytestmark = [pytest.mark.runtime, pytest.mark.mpi]
PROGRAM = Path(__file__).parent / "sizing_ranks.py"
CASES = {
    "lenet": ("lenet/lenet_solver.prototxt", 64, 1, (1, 28, 28)),
    "lenet, two ranks": ("lenet/lenet_solver.prototxt", 64, 2, (1, 28, 28)),
    "cifar10 quick": ("cifar10/cifar10_quick_solver.prototxt", 100, 1, (3, 32, 32)),
    "caffenet": ("caffenet/caffenet_solver.prototxt", 2, 1, (3, 256, 256)),
}


def estimate(job: Path, world: int, record: tuple[int, ...]) -> sizing.Estimate:
    solver = upgrade.upgrade_solver(text.parse(schema.SolverParameter, (job / "solver.prototxt").read_text(), "solver"))
    nets = graph.solver_nets(solver, lambda name: (job / name).read_text())

    def known(net: Any) -> shapes.NetShapes:
        (data,) = graph.data_layers(net)
        crop = data.transform.crop_size
        return shapes.infer(net, {data.data_top: (data.batch_size, record[0], crop or record[1], crop or record[2])})

    return sizing.estimate(solver, known(nets.train), [known(net) for net in nets.tests], world)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "caffenet")) for n in CASES])
def test_the_estimate_bounds_the_peak(
    runtime: Path, runtime_env: dict[str, str], root: Path, tmp_path: Path, name: str
):
    solver, batch, world, record = CASES[name]
    words = [str(runtime), str(root / "examples" / solver), str(tmp_path), str(batch), str(world)]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words, ",".join(map(str, record))],
        env=runtime_env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["code"] == 0, measured
    made = estimate(tmp_path / "job", world, record)
    assert 0.95 * measured["peak_mib"] <= made.rank_mib <= 1.3 * measured["peak_mib"], (measured, list(made.lines()))
