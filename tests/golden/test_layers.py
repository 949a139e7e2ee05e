"""Every golden layer case, forward and backward."""

from __future__ import annotations

import pytest
from golden.conftest import FOLDER, cases


@pytest.mark.runtime
def test_layer(outcome, engine: str, layer_case: str) -> None:
    """Every array to 1e-5 of its largest magnitude."""
    errors = outcome("golden_layers.py", engine)[layer_case]
    assert isinstance(errors, dict) and errors, errors
    assert all(error <= 1e-5 for error in errors.values()), errors


def test_there_are_cases() -> None:
    """A wrong CAFFE_GOLDEN must not pass for want of cases."""
    assert cases("layers") and cases("solvers"), FOLDER
