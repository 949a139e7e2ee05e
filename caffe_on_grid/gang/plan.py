"""GangPlan: what the driver sends to every barrier task, inside the task's closure (so the key never shows)."""

from __future__ import annotations

from dataclasses import dataclass, field

from caffe_on_grid.spec.job import JobSpec


@dataclass(frozen=True)
class GangPlan:
    """One gang: one of the job's tasks, run once."""

    job: JobSpec
    task: str
    """"train" or "test"."""
    run_id: str
    run_folder: str
    """URI of the run's folder."""
    seed: int
    driver: tuple[str, int]
    """Address of the driver's listener."""
    key: bytes = field(repr=False)
    """Secret of this gang's channel."""
