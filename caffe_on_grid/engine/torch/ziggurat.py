"""Tables of the ziggurat method (Marsaglia and Tsang, 2000): strips of equal area under a falling curve.

Strip i reaches from 0 to x[i] and from y[i] to y[i + 1]; strip 0 stands for the base and the tail beyond x[1]. From the
right edge of the base all else follows, so the tables are worked out here, in decimal arithmetic, not written down.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np

from caffe_on_grid.engine.api import Array, Floats

DIGITS = 40
NORMAL_EDGE = Decimal("3.4426198558966521214")
"""x[1] of 128 strips under exp(-x²/2)."""
NORMAL_WIDTH = Decimal("3.7130862467403632609")
"""x[0]: a strip's area, the tail's included, over the curve's height at x[1]."""
EXPONENTIAL_EDGE = Decimal("7.6971174701310497140")
"""x[1] of 256 strips under exp(-x); x[0] is greater by exactly 1, the tail's area over the height."""


class Table(NamedTuple):
    """One curve's strips, as the single-precision distributions use them."""

    width: Floats
    """float32(x[i])."""
    inside: Floats
    """A float32 below this lies under the curve, whatever its height: the least one that is not below x[i + 1]."""
    height: Floats
    """float32(y[i])."""
    rise: Floats
    """float32(y[i + 1] - y[i])."""
    step: Floats
    """float32(x[i] - x[i + 1])."""


def _exponential(strips: int) -> tuple[list[Decimal], list[Decimal]]:
    x = [EXPONENTIAL_EDGE + 1, EXPONENTIAL_EDGE]
    area = x[0] * (-x[1]).exp()
    y = [Decimal(0), area / x[0]]
    for _ in range(strips - 2):
        y.append(y[-1] + area / x[-1])
        x.append(-y[-1].ln())
    return [*x, Decimal(0)], [*y, Decimal(1)]


def _normal(strips: int) -> tuple[list[Decimal], list[Decimal]]:
    x = [NORMAL_WIDTH, NORMAL_EDGE]
    area = x[0] * (-x[1] * x[1] / 2).exp()
    y = [Decimal(0), area / x[0]]
    for _ in range(strips - 2):
        y.append(y[-1] + area / x[-1])
        x.append((-2 * y[-1].ln()).sqrt())
    return [*x, Decimal(0)], [*y, Decimal(1)]


def _table(x: list[Decimal], y: list[Decimal]) -> Table:
    wide, high = np.array(x, np.float64), np.array(y, np.float64)
    return Table(
        width=wide.astype(np.float32),
        inside=_not_below(wide[1:]),
        height=high.astype(np.float32),
        rise=(high[1:] - high[:-1]).astype(np.float32),
        step=(wide[:-1] - wide[1:]).astype(np.float32),
    )


def _not_below(edges: Array) -> Floats:
    """The least float32 that is not below each double."""
    near = edges.astype(np.float32)
    return np.where(near < edges, np.nextafter(near, np.float32(np.inf)), near).astype(np.float32)


with localcontext() as _context:
    _context.prec = DIGITS
    NORMAL = _table(*_normal(128))
    EXPONENTIAL = _table(*_exponential(256))
