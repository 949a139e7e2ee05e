"""A rank's life: `python -m caffe_on_grid.worker.main`, started by the agent (or by MPI's proxy for it)."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Callable

from caffe_on_grid.errors import GridError
from caffe_on_grid.spec import codec, program
from caffe_on_grid.spec.rank import RankSpec
from caffe_on_grid.worker import predict, train
from caffe_on_grid.worker.assemble import Assembly, assemble, communicator, prepare
from caffe_on_grid.worker.report import Reporter

TASKS: dict[str, Callable[[Assembly, Reporter], None]] = {"train": train.run, "test": predict.run}


def main() -> int:
    """Run this rank's task; the exit code is the error's."""
    program.die_with(os.getppid())  # MPI's proxy does not pass its own such wish on
    folder = Path(os.environ["CAFFE_ON_GRID_GANG_DIR"])
    number = int(os.environ.get("PMI_RANK") or os.environ["CAFFE_ON_GRID_RANK"])
    take_log(folder / f"rank-{number}.log")
    text = (folder / f"rank-{number}.json").read_text(encoding="utf-8")
    spec = codec.loads(RankSpec, text, f"rank-{number}.json")
    os.chdir(spec.scratch)
    return live(spec, Reporter(spec))


def live(spec: RankSpec, reporter: Reporter) -> int:
    """Assemble, run, and say how it ended; a failure ends the ranks that would wait for this one."""
    comm = None
    try:
        prepared = prepare(spec, lambda done, total: reporter.at(0, "starting"))
        comm = communicator(spec)
        assembly = assemble(spec, prepared, comm, reporter)
        TASKS[spec.task](assembly, reporter)
        assembly.close()
        return 0
    except Exception as error:
        traceback.print_exc()
        reporter.failed(error)
        code = error.exit_code if isinstance(error, GridError) else 1
        if comm is not None:
            comm.abort(code)
        return code
    finally:
        reporter.close()


def take_log(path: Path) -> None:
    """Send what this process (and Caffe's glog) prints to its own log file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    sys.stdout.flush()
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)
