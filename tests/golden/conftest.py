"""Runs a golden program once for each engine; the folder of the values is CAFFE_GOLDEN or tests/golden/data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("CAFFE_GOLDEN", Path(__file__).parent / "data")).resolve()
ENGINES = {"layers": ["caffe"], "solvers": ["caffe", pytest.param("torch", marks=pytest.mark.torch)]}
"""The torch engine's layers are tried one by one in test_layers_torch.py."""
_DONE: dict[tuple[str, str], Any] = {}


def cases(kind: str) -> list[str]:
    """Names of the cases of a kind ("layers", "solvers")."""
    return sorted(path.stem for path in FOLDER.glob(f"{kind}/*.npz"))


def pytest_generate_tests(metafunc: Any) -> None:
    """`engine` × `layer_case` or `solver_case`."""
    for fixture, kind in (("layer_case", "layers"), ("solver_case", "solvers")):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize("engine", ENGINES[kind])
            metafunc.parametrize(fixture, cases(kind))


@pytest.fixture
def outcome(in_engine):
    """`outcome(program, engine)[case]`: errors by name, or a traceback."""

    def of(program: str, engine: str) -> Any:
        if (program, engine) not in _DONE:
            run = in_engine(engine)([str(Path(__file__).parent / program), engine, str(FOLDER)])
            _DONE[program, engine] = json.loads(run.stdout.splitlines()[-1])
        return _DONE[program, engine]

    return of
