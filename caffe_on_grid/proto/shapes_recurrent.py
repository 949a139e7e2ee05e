"""Shapes of LSTM, RNN and LSTMUnit."""

from __future__ import annotations

from typing import Optional

from caffe_on_grid.proto.shapes_base import Given, Made, Rule, Shape, count, need, shown

_STATES = {"LSTM": 2, "RNN": 1}
"""Hidden states that expose_hidden shows."""
_GATES = {"LSTM": 4, "RNN": 1}


def _recurrent(given: Given) -> Made:
    layer, sequence = given.layer, given.first
    units, states = layer.recurrent_param.num_output, _STATES[layer.type]
    exposed = states if layer.recurrent_param.expose_hidden else 0
    most = 3 + exposed
    need(2 + exposed <= len(given.bottoms) <= most, f"{len(given.bottoms)} bottoms, expected {2 + exposed} to {most}")
    need(given.tops == 1 + exposed, f"{given.tops} tops, expected {1 + exposed}")
    need(units > 0, "num_output must be > 0")
    need(len(sequence) >= 3, "bottom 0 must have the axes T (steps), N (streams) and at least one of values")
    need(given.bottoms[1] == sequence[:2], f"bottom 1 (cont) must be T x N = {shown(sequence[:2])}")
    static = given.bottoms[2] if len(given.bottoms) > 2 + exposed else None
    if static is not None:
        need(len(static) >= 2 and static[0] == sequence[1], f"bottom 2 (static) must have N = {sequence[1]} items")
    hidden = (1, sequence[1], units)
    for at in range(len(given.bottoms) - exposed, len(given.bottoms)):
        need(given.bottoms[at] == hidden, f"bottom {at} (a state) must be {shown(hidden)}")
    return _unrolled(layer.type, sequence, units, static, exposed)


def _unrolled(kind: str, sequence: Shape, units: int, static: Optional[Shape], exposed: int) -> Made:
    steps, streams, inputs, wide = sequence[0], sequence[1], count(sequence[2:]), _GATES[kind] * units
    fixed = () if static is None else ((wide, count(static[1:])),)
    rows = steps * streams
    params: tuple[Shape, ...] = ((wide, inputs), (wide,), *fixed, (wide, units))
    products = rows * wide * (inputs + units) + (streams * wide * count(static[1:]) if static else 0)
    if kind == "RNN":
        params += ((units, units), (units,))
        products += rows * units * units
    # Each step has blobs of its own, with gradients: the gates four times over, states and their splits six times.
    own = 2 * rows * (4 * wide + 6 * units)
    tops = ((steps, streams, units), *[(1, streams, units)] * exposed)
    return Made(tops, params, 2 * products, own)


def _unit(given: Given) -> Made:
    cell, gates, _ = given.bottoms
    for at, (shape, axes) in enumerate(zip(given.bottoms, (3, 3, 2))):
        need(len(shape) == axes, f"bottom {at} must have {axes} axes, not {len(shape)}")
        need(shape[0] == 1, f"bottom {at} must begin with an axis of 1")
        need(shape[1] == cell[1], f"bottom {at} must have the {cell[1]} streams of bottom 0")
    need(gates[2] == 4 * cell[2], f"bottom 1 (the gates) must have 4 x {cell[2]} values, not {gates[2]}")
    return Made((cell, cell), buffers=count(gates))


RULES: dict[str, Rule] = {
    "LSTM": Rule(_recurrent, (2, None), (1, None)),
    "LSTMUnit": Rule(_unit, (3, 3), (2, 2)),
    "RNN": Rule(_recurrent, (2, None), (1, None)),
}
