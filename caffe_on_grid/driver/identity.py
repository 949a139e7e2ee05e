"""A run's seed."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.storage import snapshots


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
