"""Caffe's random numbers on a CPU, bit for bit: MT19937 under the distributions of Boost 1.56 and later.

Sources: `caffe/util/math_functions.cpp` (which distribution, in which precision) and Boost.Random's description of
uniform_real, bernoulli, normal and exponential distributions. Draws are made in blocks; which draw serves which number
is as if they had been made one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from caffe_on_grid.engine.api import Array, Floats
from caffe_on_grid.engine.torch.ziggurat import EXPONENTIAL, NORMAL

BLOCK = 1 << 18
"""Draws that are looked at together: small enough for the processor's cache."""
TWO_32 = np.float32(2.0**32)
LOW_BYTE, EIGHT = np.uint32(255), np.uint32(8)


class Stream:
    """One Caffe thread's generator (`caffe_rng`), as `random_seed` starts it."""

    def __init__(self, seed: int) -> None:
        """`seed`: its low 32 bits count."""
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Start afresh, as `Caffe::set_random_seed`."""
        self._generator = np.random.RandomState(seed % 2**32)
        self._ahead: Array = np.empty(0, np.uint32)

    def raw(self, n: int) -> Array:
        """The next n draws, uint32."""
        return np.array(self._take(n))

    def uniform(self, n: int, low: float, high: float) -> Floats:
        """n numbers in [low, high], as `caffe_rng_uniform<float>`."""
        a, out = np.float32(low), np.empty(n, np.float32)
        end = np.nextafter(np.float32(high), np.float32(np.inf))
        done = 0
        while done < n:  # a number that rounds up to `end` is drawn again
            drawn = self._take(min(n - done, BLOCK)).astype(np.float32) / TWO_32 * (end - a) + a
            kept = drawn[drawn < end]
            out[done : done + len(kept)] = kept
            done += len(kept)
        return out

    def bernoulli(self, n: int, p: float) -> Array:
        """n times True with probability p, as `caffe_rng_bernoulli<double>` (dropout masks)."""
        return self._take(n) <= p * (2.0**32 - 1) if p else np.zeros(n, bool)

    def bernoulli_single(self, n: int, p: float) -> Array:
        """The same in single precision, as `caffe_rng_bernoulli<float>` (sparse fillers)."""
        return self._take(n).astype(np.float32) <= np.float32(p) * TWO_32 if p else np.zeros(n, bool)

    def gaussian(self, n: int, mean: float, std: float) -> Floats:
        """n normal numbers, as `caffe_rng_gaussian<float>`."""
        out, done = np.empty(n, np.float32), 0
        while done < n:  # each number takes one draw or more: a block gives at most as many as it has draws
            numbers = self._normal(min(n - done, BLOCK))
            out[done : done + len(numbers)] = numbers
            done += len(numbers)
        out *= np.float32(std)
        out += np.float32(mean)
        return out

    def _peek(self, n: int) -> Array:
        """The next n draws, which stay to be taken."""
        if n > len(self._ahead):
            more = max(n - len(self._ahead), 1024)
            drawn = self._generator.randint(0, 2**32, more, dtype=np.uint32)
            self._ahead = np.concatenate([self._ahead, drawn]) if len(self._ahead) else drawn
        return self._ahead[:n]

    def _take(self, n: int) -> Array:
        taken = self._peek(n)
        self._ahead = self._ahead[n:]
        return taken

    def _normal(self, n: int) -> Floats:
        """The standard normal numbers that begin within the next n draws."""
        draws = self._peek(n + 1)
        lowest = (draws[:n] & LOW_BYTE).astype(np.uint8)
        values = (draws[:n] >> EIGHT).astype(np.float32)
        values *= SIGNED.take(lowest)
        edges = np.flatnonzero(np.abs(values) >= INSIDE.take(lowest))
        strip, unit = lowest[edges] >> 1, draws[edges + 1].astype(np.float32) / TWO_32
        under = _under_curve(values[edges], strip, unit).tolist()
        alone = ((strip == 0) | (unit == 1)).tolist()
        keep, at = np.ones(n, bool), 0
        for index, edge in enumerate(edges.tolist()):
            if edge < at:
                continue  # it was the height of the one before
            if alone[index]:
                values[edge], at = self._one(edge)
            else:
                keep[edge], at = under[index], edge + 2
            keep[edge + 1 : at] = False
        self._take(max(n, at))
        return values[keep]

    # One number at a time, from place `at` of the draws ahead: the number and the place after its draws. Products and
    # sums of float32 values are exact enough in Python's floats to be rounded once, as single precision does.

    def _one(self, at: int) -> tuple[float, int]:
        """A standard normal number."""
        while True:
            draw, at = self._draw(at)
            strip, sign = (draw & 255) >> 1, 1 if draw & 1 else -1
            x = single((draw >> 8) * 2.0**-24 * NORMAL.width.item(strip))
            if x < NORMAL.inside.item(strip):
                return x * sign, at
            if strip == 0:
                x, at = self._tail(at)
                return x * sign, at
            unit, at = self._unit(at)
            if _under_curve(np.float32(x), strip, np.float32(unit)):
                return x * sign, at

    def _tail(self, at: int) -> tuple[float, int]:
        """A number beyond the base."""
        while True:
            x, at = self._exponential(at)
            y, at = self._exponential(at)
            x = single(x / EDGE)
            if 2 * y > single(x * x):
                return single(x + EDGE), at

    def _exponential(self, at: int) -> tuple[float, int]:
        shift = 0.0
        while True:
            draw, at = self._draw(at)
            strip = draw & 255
            x = single((draw >> 8) * 2.0**-24 * WIDTHS[strip])
            if x < WIDTHS[strip + 1]:
                return single(shift + x), at
            if strip == 0:
                shift = single(shift + WIDTHS[1])
                continue
            unit, at = self._unit(at)
            height = single(EXPONENTIAL.height.item(strip) + single(unit * EXPONENTIAL.rise.item(strip)))
            if height < single(math.exp(-x)):
                return single(shift + x), at

    def _unit(self, at: int) -> tuple[float, int]:
        """A number in [0, 1); one that rounds up to 1 is drawn again."""
        while True:
            draw, at = self._draw(at)
            value = single(draw) / 2.0**32
            if value < 1:
                return value, at

    def _draw(self, at: int) -> tuple[int, int]:
        return self._peek(at + 1).item(at), at + 1


def single(value: float) -> float:
    """Rounded to single precision."""
    return float(np.float32(value))


def _under_curve(x: Any, strip: Any, unit: Any) -> Array:
    """Whether the point over x, `unit` of the way up its strip, lies under exp(-x²/2)."""
    height = NORMAL.height[strip] + unit * NORMAL.rise[strip]
    curve = np.exp(np.asarray(-(x * x / np.float32(2)), np.float64)).astype(np.float32)
    return np.asarray(height < curve)


_BYTE = np.arange(256)
SIGNED = np.where(_BYTE & 1, 1, -1).astype(np.float32) * NORMAL.width[_BYTE >> 1] * np.float32(2.0**-24)
"""By a draw's lowest byte (sign and strip): what its upper 24 bits count."""
INSIDE = NORMAL.inside[_BYTE >> 1]
EDGE = NORMAL.width.item(1)
WIDTHS: list[float] = EXPONENTIAL.width.tolist()
