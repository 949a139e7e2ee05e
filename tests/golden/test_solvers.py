"""Twelve steps of every golden solver case, through the engine contract."""

from __future__ import annotations

import pytest

TOLERANCES = {"init": 0.0, "loss": 1e-6, "params": 1e-5, "restored": 0.0, "continued": 1e-5, "model": 0, "state": 0}


@pytest.mark.runtime
def test_solver(outcome, engine: str, solver_case: str) -> None:
    """Fillers bit by bit; losses; parameters after each step; Caffe's snapshot restored, written again, continued."""
    errors = outcome("golden_solvers.py", engine)[solver_case]
    assert isinstance(errors, dict), errors
    assert all(errors[name] <= limit for name, limit in TOLERANCES.items()), errors
