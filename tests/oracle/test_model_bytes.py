"""The torch engine writes Caffe's .caffemodel byte for byte: values from the seed, and all else of a layer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.mark.runtime
@pytest.mark.torch
def test_the_same_bytes(in_engine, root: Path) -> None:
    """Of every golden layer case's net."""
    args = [str(root / "tests" / "oracle" / "model_bytes.py"), "", str(root / "tests" / "golden" / "data")]
    caffe, torch = (
        json.loads(in_engine(engine)([args[0], engine, args[2]]).stdout.splitlines()[-1])
        for engine in ("caffe", "torch")
    )
    assert len(caffe) > 90
    assert {name for name in caffe if caffe[name] != torch[name]} == set()
