"""The engine contract, for every engine, in the ranks' Python: one process for each engine."""

from __future__ import annotations

import json

import pytest
from contract.engine_cases import CASES

ENGINES = ["caffe", *(pytest.param(name, marks=pytest.mark.torch) for name in ("torch", "torch+copies"))]
_DONE: dict[str, dict[str, str]] = {}


@pytest.fixture
def outcomes(in_engine, root):
    """Engine → case → "ok" or a traceback; an engine's program runs when it is first asked for."""

    def of(engine: str) -> dict[str, str]:
        if engine not in _DONE:
            program = in_engine(engine.split("+")[0])([str(root / "tests" / "contract" / "engine_cases.py"), engine])
            _DONE[engine] = json.loads(program.stdout.splitlines()[-1])
        return _DONE[engine]

    return of


@pytest.mark.runtime
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", list(CASES))
def test_engine(outcomes, engine: str, case: str) -> None:
    assert outcomes(engine)[case] == "ok"
