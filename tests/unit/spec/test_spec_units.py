from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_on_grid.spec import units


@pytest.mark.parametrize(
    ("text", "mib"),
    [("512m", 512), ("4g", 4096), ("4G", 4096), ("1t", 1 << 20), ("2048k", 2), ("700", 700), (" 1gb ", 1024)],
)
def test_memory(text: str, mib: int) -> None:
    assert units.mebibytes(text) == mib


@pytest.mark.parametrize("text", ["", "m", "1.5g", "-1g", "4 gigs", "0", "3k", "١g1"])
def test_memory_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a memory size such as 512m or 4g, got "):
        units.mebibytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("90s", 90), ("1.5h", 5400), ("250ms", 0.25), ("7", 7), ("1d", 86400), ("2min", 120)],
)
def test_duration(text: str, seconds: float) -> None:
    assert units.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-3s", "10 minutes", "1e3", "inf", "nan"])
def test_duration_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 90s or 10m, got "):
        units.seconds(text)


@given(st.text("0123456789.kKmgtbshd -é", max_size=8))
def test_total(text: str) -> None:
    """Any text gives a positive size, a duration, or the error that names the text."""
    for read in (units.mebibytes, units.seconds):
        try:
            assert read(text) >= 0
        except ValueError as error:
            assert repr(text) in str(error)
