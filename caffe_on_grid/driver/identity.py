"""What a run is called, where it keeps its things, and its seed."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.storage import paths, snapshots


def run_id(now: datetime, letters: str) -> str:
    """A name that sorts by time: "20260131-235959-1f2e3d"."""
    return f"{now.astimezone(timezone.utc):%Y%m%d-%H%M%S}-{letters}"


def fresh_run_id() -> str:
    """The name of a run that begins now."""
    return run_id(datetime.now(timezone.utc), secrets.token_hex(3))


def run_folder(job: JobSpec, name: str, cwd: str) -> str:
    """URI of the run's folder: as the job says, else beside what the job writes, else in the working directory."""
    if job.output.run_folder:
        return job.output.run_folder
    main_output = job.output.model if "train" in job.tasks else job.output.text
    if main_output is None:
        return paths.join(cwd, "caffe-on-grid-runs", name)
    return paths.join(paths.parent(main_output), paths.stem(main_output), name)


def pointer(job: JobSpec, folder: str) -> Optional[str]:
    """URI of the file that names the latest run; None where the job fixes its folder and so has one run only."""
    return None if job.output.run_folder else paths.join(paths.parent(folder), "latest")


def seed(job: JobSpec, job_dir: Path) -> int:
    """The run's seed: the job's, the solver's random_seed, that of the snapshot it resumes, or a fresh one."""
    if job.data.seed is not None:
        return job.data.seed
    solver = solver_seed(job_dir / job.solver)
    if solver is not None:
        return solver
    manifest = snapshots.find(job.start.snapshot)[0] if job.start.snapshot else None
    return manifest.seed if manifest else secrets.randbelow(1 << 31)


def solver_seed(path: Path) -> Optional[int]:
    """random_seed of a solver prototxt; None where it is unset or negative (Caffe's word for unset)."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the solver cannot be read: {error}") from None
    value = int(text.parse(schema.SolverParameter, content, str(path)).random_seed)
    return value if value >= 0 else None
