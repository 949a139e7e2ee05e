"""What a run is called and where it keeps its things; gateway and driver agree on it here."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from typing import Optional

from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.storage import hadoop, paths

RUN_ID = "CAFFE_ON_GRID_RUN_ID"
"""Variable by which a gateway that follows the run names it; without it the driver does."""


def run_id(now: datetime, letters: str) -> str:
    """A name that sorts by time: "20260131-235959-1f2e3d"."""
    return f"{now.astimezone(timezone.utc):%Y%m%d-%H%M%S}-{letters}"


def fresh_run_id() -> str:
    """The name of a run that begins now."""
    return run_id(datetime.now(timezone.utc), secrets.token_hex(3))


def run_folder(job: JobSpec, name: str, cwd: str) -> str:
    """URI of the run's folder: as the job says, else beside what the job writes, else in the working directory.

    On YARN the last is the user's home on the default store.
    """
    if job.output.run_folder:
        return job.output.run_folder
    main_output = job.output.model if "train" in job.tasks else job.output.text
    if main_output is None:
        home = hadoop.qualify("") if job.cluster.master == "yarn" else ""
        return paths.join(home or cwd, "caffe-on-grid-runs", name)
    return paths.join(paths.parent(main_output), paths.stem(main_output), name)


def pointer(job: JobSpec, folder: str) -> Optional[str]:
    """URI of the file that names the latest run; None where the job fixes its folder and so has one run only."""
    return None if job.output.run_folder else paths.join(paths.parent(folder), "latest")
