"""What either engine writes, the other loads and continues from with the same losses: every solver, both formats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.runtime, pytest.mark.torch]


@pytest.mark.parametrize(("writer", "reader"), [("caffe", "torch"), ("torch", "caffe")])
def test_the_other_engine_continues(in_engine, root: Path, tmp_path: Path, writer: str, reader: str) -> None:
    program = str(root / "tests" / "oracle" / "engine_exchange.py")
    found = [
        json.loads(in_engine(engine)([program, engine, action, str(tmp_path)]).stdout.splitlines()[-1])
        for engine, action in ((writer, "write"), (reader, "continue"))
    ]
    assert len(found[0]) == 8
    for case, wanted in found[0].items():
        np.testing.assert_allclose(found[1][case], wanted, rtol=1e-5, atol=1e-6, err_msg=case)


def test_both_train_alike(in_engine, root: Path, tmp_path: Path) -> None:
    """From the seed on."""
    program = str(root / "tests" / "oracle" / "engine_exchange.py")
    caffe, torch = (
        json.loads(in_engine(engine)([program, engine, "write", str(tmp_path)]).stdout.splitlines()[-1])
        for engine in ("caffe", "torch")
    )
    for case, wanted in caffe.items():
        np.testing.assert_allclose(torch[case], wanted, rtol=1e-5, atol=1e-6, err_msg=case)
