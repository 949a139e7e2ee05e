"""The torch engine's fillers and random stream against real Caffe, bit for bit (they need numpy alone)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILLERS = (
    'type: "gaussian" std: 0.01',
    'type: "gaussian" mean: 0.5 std: 2 sparse: 3',
    'type: "uniform" min: -0.3 max: 0.7',
    'type: "uniform" min: 1000 max: 1000.001',
    'type: "xavier"',
    'type: "xavier" variance_norm: AVERAGE',
    'type: "msra" variance_norm: FAN_OUT',
    'type: "positive_unitball"',
    'type: "constant" value: 0.3',
)
SHAPES = ([7], [33, 21], [16, 5, 3, 3], [1500, 1500])
SEEDS = (0, 5, 2**31 - 1)
CASES = [{"seed": seed, "filler": filler, "shape": shape} for seed in SEEDS for filler in FILLERS for shape in SHAPES]
CASES += [{"seed": 1, "filler": 'type: "bilinear"', "shape": [2, 3, k, k]} for k in range(1, 34)]


@pytest.mark.runtime
def test_fillers(in_runtime, root: Path, tmp_path: Path) -> None:
    """Every value of every filler, and the place in the stream where it stops."""
    wanted = json.loads(in_runtime([str(root / "tests/oracle/fillers_in_caffe.py"), json.dumps(CASES)]).stdout)
    program = str(root / "tests/unit/torch_engine/filler_program.py")
    environment = {**os.environ, "PYTHONPATH": str(root)}
    found = subprocess.run(
        [sys.executable, program, json.dumps(CASES)], env=environment, check=True, capture_output=True, text=True
    )
    wrong = [case for case, ours, theirs in zip(CASES, json.loads(found.stdout), wanted) if ours != theirs]
    assert len(wanted) == len(CASES) and not wrong, wrong
