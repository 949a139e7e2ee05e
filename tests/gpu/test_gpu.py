"""Caffe's values and the engine contract on a GPU: `make test-gpu`. In the torch engine's Python; no Caffe needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from golden.conftest import FOLDER, cases
from golden.test_solvers import TOLERANCES

torch = pytest.importorskip("torch", reason="the GPU tests need torch: run them by `make test-gpu`")

from contract.engine_cases import CASES  # noqa: E402
from golden.test_layers_torch import check  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.gpu]
TESTS = Path(__file__).resolve().parent.parent
_DONE: dict[str, Any] = {}


def outcomes(program: str, *words: str) -> Any:
    """What a program of the tests prints as JSON, with its engine on GPU 0; it runs once."""
    if program not in _DONE:
        env = {**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS}", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, str(TESTS / program), "torch+gpu", *words], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        _DONE[program] = json.loads(done.stdout.splitlines()[-1])
    return _DONE[program]


@pytest.mark.parametrize("name", cases("layers"))
def test_layer(name: str) -> None:
    check(name, torch.device("cuda", 0))


@pytest.mark.parametrize("name", cases("solvers"))
def test_solver(name: str) -> None:
    errors = outcomes("golden/golden_solvers.py", str(FOLDER))[name]
    assert isinstance(errors, dict), errors
    assert all(errors[key] <= limit for key, limit in TOLERANCES.items()), errors


@pytest.mark.parametrize("case", list(CASES))
def test_contract(case: str) -> None:
    assert outcomes("contract/engine_cases.py")[case] == "ok"
