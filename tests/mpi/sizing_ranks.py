"""`sizing_ranks.py RUNTIME SOLVER FOLDER BATCH WORLD RECORD`: a step and two tests of an example by ranks, as JSON.

The peak memory is the kernel's, of the largest process that was waited for; so this is a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import nets
from ranks import Ranks

from caffe_on_grid.proto import graph, schema, text, upgrade
from caffe_on_grid.spec.job import JobSpec, Output


def job(solver_path: Path, folder: Path, batch: int, record: tuple[int, ...]) -> Any:
    """The example's solver and net with another batch, small LMDBs, one step between two tests, in `folder`."""
    solver = upgrade.upgrade_solver(text.parse(schema.SolverParameter, solver_path.read_text(), str(solver_path)))
    net = graph.read_net(solver.net, lambda name: (solver_path.parent / name).read_text())
    source = nets.write_lmdb(folder / "records", 8, size=record[1], channels=record[0])
    for layer in net.layer:
        if layer.type == "Data":
            layer.data_param.source, layer.data_param.batch_size = str(source), batch
    solver.net, solver.max_iter, solver.test_interval, solver.solver_mode = "net.prototxt", 1, 1, 0
    solver.ClearField("snapshot")
    del solver.test_iter[1:]
    solver.test_iter[0] = 1
    return nets.write_job(folder / "job", text.render(net), text.render(solver))


def main(runtime: str, solver: str, folder: str, batch: str, world: str, record: str) -> None:
    made, where = tuple(int(n) for n in record.split(",")), Path(folder)
    job_dir = job(Path(solver), where, int(batch), made)
    (where / "gangs").mkdir()
    spec = JobSpec(("train",), "solver.prototxt", output=Output(model=str(where / "m.caffemodel")))
    outcome = Ranks(Path(runtime), dict(os.environ), where / "gangs").run(spec, job_dir, int(world))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps({"code": outcome.code, "peak_mib": peak, "said": outcome.output[-500:], "job": str(job_dir)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
