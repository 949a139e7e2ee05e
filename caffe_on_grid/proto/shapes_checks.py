"""What Caffe checks of every layer, whatever its type."""

from __future__ import annotations

from typing import Any, Optional

from caffe_on_grid.proto.shapes_base import INT_MAX, Made, Rule, Shape, count, need, shown
from caffe_on_grid.spec.codec import suggestion

FILLERS = ("constant", "gaussian", "positive_unitball", "uniform", "xavier", "msra", "bilinear")
"""Ways to fill a parameter."""
_BY_FAN = ("positive_unitball", "xavier", "msra")
_MAX_AXES = 32


def arity(rule: Rule, layer: Any) -> None:
    """Numbers of bottoms and tops, loss weights and propagate_down."""
    for what, found, (least, most) in (
        ("bottom", len(layer.bottom), rule.bottoms),
        ("top", len(layer.top) or rule.tops[0] * rule.loss, rule.tops),
    ):
        within = least <= found and (most is None or found <= most)
        need(within, f"{found} {what}{'' if found == 1 else 's'}, expected {_wanted(least, most)}")
    matched = not rule.pairs or len(layer.top) == len(layer.bottom)
    need(matched, f"{len(layer.top)} tops for {len(layer.bottom)} bottoms, expected as many")
    in_place = set(layer.top) & set(layer.bottom)
    need(rule.in_place or not in_place, f"it cannot work in place, and {', '.join(in_place)} is its bottom and its top")
    weights, tops = len(layer.loss_weight), len(layer.top) or int(rule.loss)
    free = (0, tops) if not rule.loss or tops == 1 else (tops,)
    need(weights in free, f"{weights} loss_weight for {tops} tops: give {'none, or ' * (0 in free)}one for each")
    down = len(layer.propagate_down)
    need(down in (0, len(layer.bottom)), f"{down} propagate_down for {len(layer.bottom)} bottoms")


def _wanted(least: int, most: Optional[int]) -> str:
    if most is None:
        return f"at least {least}"
    return str(least) if least == most else f"{least} to {most}"


def size(shape: Shape) -> None:
    """A blob that Caffe can hold."""
    need(len(shape) <= _MAX_AXES, f"a blob has at most {_MAX_AXES} axes, and {shown(shape)} has {len(shape)}")
    need(all(n >= 0 for n in shape), f"no axis of {shown(shape)} may be negative")
    need(count(shape) <= INT_MAX, f"a blob holds at most {INT_MAX} values, and {shown(shape)} is {count(shape)}")


def fillers(layer: Any, rule: Rule, made: Made) -> None:
    """Caffe fills no empty parameter, and knows seven ways."""
    if not rule.fillers or layer.blobs:
        return
    message, names = getattr(layer, rule.fillers[0]), rule.fillers[1:]
    if layer.type == "Scale" and len(layer.bottom) > 1:
        names = names[1:]  # its factor is a bottom
    for name, shape in zip(names, made.params):
        filler = getattr(message, name)
        kind = filler.type
        need(kind in FILLERS, f"unknown {name} type {kind!r}{suggestion(kind, FILLERS)}")
        need(count(shape) > 0, f"the parameter {shown(shape)} is empty")
        need(kind not in _BY_FAN or bool(shape), f"{name} {kind!r} is for a parameter with axes, and this is a scalar")
        if kind == "gaussian" and filler.sparse >= 0:
            fits = bool(shape) and filler.sparse <= shape[0]
            need(fits, f"{name}: sparse {filler.sparse} must be <= the first axis of {shown(shape)}")
        square = len(shape) == 4 and shape[2] == shape[3]
        need(kind != "bilinear" or square, f"a bilinear filler needs a square kernel in 2-d, not {shown(shape)}")
