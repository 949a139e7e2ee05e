"""A driver that died before it could write its end: what became of the run, and the end of its run.json."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Optional

from caffe_on_grid.errors import ApplicationDied, GridError, Interrupted, Terminated, TrainingFailed
from caffe_on_grid.metrics import jsonl
from caffe_on_grid.spec import run as records
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.submit import process

LOOK_BYTES = 4 << 20
"""How much of the end of metrics.jsonl, which grows by hundreds of MiB a day, tells how far a run was."""


def told(record: Optional[records.RunRecord], code: int, caught: bool) -> bool:
    """Whether the driver has written its end and could say it, where Spark ended with `code`, as subprocess gives it.

    What a driver says goes through Spark, and with a Spark that was killed it is killed itself: only a run that ended
    well, or after a signal of ours, needs no more words then.
    """
    if record is None or record.exit_code is None:
        return False
    return code >= 0 or caught or record.outcome == "done"


def died(record: Optional[records.RunRecord], code: int, last: str) -> GridError:
    """The error for a Spark that ended with `code`, as subprocess gives it, and said `last`.

    ApplicationDied before the first step, TrainingFailed after it. `record`: what the driver had written, if anything.
    """
    try:
        step = last_step(record.run_folder) if record else None
    except GridError:  # what cannot be looked at must not stand in for what is known
        return TrainingFailed(f"Spark {_ended(code)}, and how far the training was cannot be read: {last}")
    if step is None:
        return ApplicationDied(f"Spark {_ended(code)} before the driver could say why: {last}")
    return TrainingFailed(f"Spark {_ended(code)} in training, after {step} iterations: {last}")


def last_step(run_folder: str) -> Optional[int]:
    """Steps that rank 0 had reported, from the run's metrics; None before the first."""
    uri = paths.join(run_folder, "metrics.jsonl")
    storage = connect(uri)
    if not storage.exists(uri):
        return None
    size = storage.size(uri)
    start = max(0, size - LOOK_BYTES)
    end = b"".join(storage.pieces(uri, start, size - start)).decode("utf-8", "replace")
    lines = jsonl.read(end.splitlines(keepends=True)[1 if start else 0 :])
    return max((int(line["iteration"]) for line in lines if line.get("kind") == "stepped"), default=None)


def close(record: records.RunRecord, error: GridError) -> None:
    """Write into run.json, which still says "running", how the run ended; where that fails, say so and no more."""
    uri = paths.join(record.run_folder, "run.json")
    ended = replace(
        record,
        outcome="interrupted" if isinstance(error, (Interrupted, Terminated)) else "failed",
        exit_code=error.exit_code,
        ended=records.now(),
        cause=records.Cause(type(error).__name__, " ".join(str(error).split())),
    )
    try:
        storage = connect(uri)
        if storage.exists(uri):
            storage.write(records.dumps(ended).encode(), uri)
    except GridError as fault:
        process.say(f"note: it is not recorded how the run ended: {fault}")


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
