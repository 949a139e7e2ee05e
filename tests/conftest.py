"""Fixtures for every room: the Caffe runtime and the checkout."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def runtime() -> Path:
    """The unpacked Caffe runtime; its absence is a failure, not a skip: `make test` builds it first."""
    path = Path(os.environ.get("CAFFE_ON_GRID_RUNTIME", ROOT / ".cache" / "runtime"))
    assert (path / "bin" / "python").exists(), f"no Caffe runtime at {path}: run `make archive`"
    return path


@pytest.fixture(scope="session")
def runtime_env(runtime: Path) -> dict[str, str]:
    """Environment of a program in the runtime's Python that imports this checkout."""
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
    return {
        **keep,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GLOG_minloglevel": "2",
        "OPENBLAS_NUM_THREADS": "1",
    }


@pytest.fixture(scope="session")
def in_runtime(runtime: Path, runtime_env: dict[str, str]):
    """Run a program in the runtime's Python: `in_runtime(["-m", "…"], cwd=…)` → CompletedProcess (text)."""

    def run(
        args: Sequence[str], cwd: Path | None = None, check: bool = True, timeout: float = 120, **env: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(runtime / "bin" / "python"), *args],
            cwd=cwd,
            env={**runtime_env, **env},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"{args} → {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
