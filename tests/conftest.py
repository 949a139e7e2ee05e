"""Fixtures for every room: the Caffe runtime and the checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts Spark comes first: it takes longest, and of several workers none is left alone with it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


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
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="session")
def torch_python() -> Path:
    """A Python that has torch: CAFFE_ON_GRID_TORCH_PYTHON, this one, or the virtual environment in .cache."""
    named, cached = os.environ.get("CAFFE_ON_GRID_TORCH_PYTHON"), ROOT / ".cache" / "venv-torch" / "bin" / "python"
    if named:
        return Path(named)
    if importlib.util.find_spec("torch"):
        return Path(sys.executable)
    if not cached.exists():
        pytest.skip("the torch engine's tests need torch: name a Python that has it in CAFFE_ON_GRID_TORCH_PYTHON")
    return cached


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _in_python(python: Path, environment: dict[str, str]) -> Run:
    def run(
        args: Sequence[str], cwd: Path | None = None, check: bool = True, timeout: float = 240, **env: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(python), *args],
            cwd=cwd,
            env={**environment, **env},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"{args} → {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def in_runtime(runtime: Path, runtime_env: dict[str, str]) -> Run:
    """Run a program in the runtime's Python: `in_runtime(["-m", "…"], cwd=…)` → CompletedProcess (text)."""
    return _in_python(runtime / "bin" / "python", runtime_env)


@pytest.fixture(scope="session")
def in_torch(torch_python: Path, runtime_env: dict[str, str]) -> Run:
    """The same in a Python that has torch."""
    return _in_python(torch_python, runtime_env)


@pytest.fixture
def in_engine(request: pytest.FixtureRequest) -> Callable[[str], Run]:
    """`in_engine("caffe" or "torch")` is what runs a program in a Python that has this engine."""
    return lambda engine: request.getfixturevalue({"caffe": "in_runtime", "torch": "in_torch"}[engine])
