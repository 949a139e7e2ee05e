"""Running a SparkCommand to its end, and the outcome that the driver leaves."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import SIGNALS, ContactLost, GridError
from caffe_on_grid.spec import run as records
from caffe_on_grid.submit import aftermath, argv, yarn_run
from caffe_on_grid.submit.process import kill, say, started

GRACE_S = 30.0
"""How long a job may take to end after the first signal; then it is killed."""


def run(
    command: argv.SparkCommand, folder: Path, environ: Mapping[str, str], grace_s: float = GRACE_S
) -> records.RunRecord:
    """Run `command` to its end; what its driver wrote of itself.

    Where the driver could not write its end, run.json is closed in its stead, and this raises: ApplicationDied (after
    the first step TrainingFailed) with Spark's last lines, Interrupted or Terminated after a signal, ContactLost for a
    driver in the cluster whose record is not on this machine.
    """
    outcome = folder / argv.OUTCOME
    if command.application is not None:
        return yarn_run.run(command, command.application, outcome, environ, grace_s)
    env = {**environ, **command.env, "CAFFE_ON_GRID_OUTCOME": str(outcome)}
    with started(command, env) as (process, tail, caught):
        code = _wait(process, caught, grace_s, outcome)
    return _record(outcome, code, caught, list(tail), "cluster" in command.argv)


def _wait(process: subprocess.Popen[bytes], caught: list[int], grace_s: float, outcome: Path) -> int:
    deadline, application = None, None
    while True:
        try:
            return process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            application = application or _announced(outcome)
            if caught and deadline is None:
                deadline = time.monotonic() + grace_s
            if deadline is not None and time.monotonic() > deadline:
                kill(process)


def _as_told(record: records.RunRecord, caught: list[int]) -> records.RunRecord:
    """The record; after a signal a failure is its consequence, whatever broke first on the way down."""
    if not caught or record.outcome == "done":
        return record
    return replace(record, outcome="interrupted", exit_code=SIGNALS[caught[0]].exit_code)


def _announced(outcome: Path) -> Optional[str]:
    """The application's id, once the driver has written it; YARN's is said as schedulers look for it."""
    try:
        found = json.loads(outcome.read_text(encoding="utf-8"))["application_id"]
    except (OSError, ValueError):
        return None  # not yet, or just being written
    if found and found.startswith("application_"):
        say(f"Submitted application {found}")
    return str(found) if found else None


def _record(outcome: Path, code: int, caught: list[int], tail: list[str], in_cluster: bool) -> records.RunRecord:
    record = records.loads(outcome.read_text(encoding="utf-8"), str(outcome)) if outcome.is_file() else None
    if record is not None and aftermath.told(record, code, bool(caught)):
        return _as_told(record, caught)
    error = _unsaid(record, code, caught, tail, in_cluster)
    if record is not None:
        aftermath.close(record, error)
    raise error


def _unsaid(
    record: Optional[records.RunRecord], code: int, caught: list[int], tail: list[str], in_cluster: bool
) -> GridError:
    """What the driver has left unsaid: the end of the run."""
    if caught:
        return SIGNALS[caught[0]](
            "ended by a signal before the job had begun" if record is None else "ended by a signal"
        )
    if in_cluster and code == 0:
        return ContactLost("the application has ended well, and its run.json is beside the model, not on this machine")
    return aftermath.died(record, code, " | ".join(tail[-3:]) or "its messages are above")
