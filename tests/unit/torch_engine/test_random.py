"""Caffe's random stream: its known values, and that its parts fit together whatever the amounts asked for."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_on_grid.engine.torch import fillers, random
from caffe_on_grid.engine.torch.random import Stream
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text


def test_known_values() -> None:
    """Real Caffe's, of seed 1701, as printed."""
    uniform = [-0.82113355, 0.03747821, -0.7692446, 0.61336017, 0.03748786, 0.06374049]
    normal = [-0.10926592, -1.6719402, -0.20477624, -0.5271481, -1.2934644, 0.5729043]
    np.testing.assert_allclose(Stream(1701).uniform(6, -1, 1), uniform, rtol=0, atol=1e-7)
    np.testing.assert_allclose(Stream(1701).gaussian(6, 0, 1), normal, rtol=0, atol=1e-7)
    assert Stream(1701).bernoulli(12, 0.5).astype(int).tolist() == [1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0]


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is looked at together, the numbers and the place in the stream are the same."""
    whole = Stream(3)
    numbers, after = whole.gaussian(50_000, 0, 1), whole.raw(1)
    monkeypatch.setattr(random, "BLOCK", 7)
    parts = Stream(3)
    np.testing.assert_array_equal(np.concatenate([parts.gaussian(n, 0, 1) for n in (1, 12_345, 37_654)]), numbers)
    assert parts.raw(1) == after


def test_normal_numbers_are_normal() -> None:
    numbers = Stream(9).gaussian(400_000, 0, 1)
    assert abs(numbers.mean()) < 0.01 and abs(numbers.std() - 1) < 0.01
    assert 0.0004 < (np.abs(numbers) > 3.4426).mean() < 0.0008, "the tail is drawn"


def test_no_draw_without_chance() -> None:
    """Boost draws nothing where the probability is 0."""
    stream = Stream(1)
    assert not stream.bernoulli(5, 0).any() and not stream.bernoulli_single(5, 0).any()
    assert stream.raw(1) == Stream(1).raw(1)


@pytest.mark.parametrize(
    ("filler", "shape", "words"),
    [
        ('type: "xavir"', (2, 2), "did you mean 'xavier'"),
        ('type: "gaussian" std: 0', (2, 2), "std is 0"),
        ('type: "uniform" min: 2 max: 1', (2, 2), "min is 2"),
        ('type: "uniform" sparse: 1', (2, 2), "sparse"),
        ('type: "bilinear"', (2, 2, 3, 4), "square kernel"),
        ('type: "msra"', (0, 2), "no values"),
    ],
)
def test_refusals(filler: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fillers.fill(text.parse(schema.message("FillerParameter"), filler, "f"), shape, Stream(1))
