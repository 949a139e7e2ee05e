"""How a net's layers are joined: who makes a blob, who uses it, and which roundings meet where branches join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto.shapes_base import LayerShapes
from caffe_on_grid.spec.codec import suggestion

Place = tuple[int, int]
"""Layer index and top index."""


@dataclass(frozen=True)
class Wiring:
    """Users of each top: layers, and the loss where a top has a loss_weight. With more than one, Caffe copies."""

    users: dict[Place, int]


def wire(net: Any) -> Wiring:
    """The wiring of a filtered net, by the rules of Net::Init and InsertSplits.

    Raises ConfigError for a bottom that no layer before makes, a top that is made twice, and a layer that works in
    place on a blob that others use too.
    """
    latest: dict[str, Place] = {}
    users: Counter[Place] = Counter()
    replaced: list[tuple[Place, int, str]] = []
    for at, layer in enumerate(net.layer):
        for name in layer.bottom:
            if name not in latest:
                raise ConfigError(
                    f"layer {layer.name!r}: no layer before it makes its bottom {name!r}{suggestion(name, latest)}"
                )
            users[latest[name]] += 1
        for index, name in enumerate(layer.top):
            if list(layer.bottom)[index : index + 1] == [name]:
                replaced.append((latest[name], at, name))
            elif name in latest:
                owner = net.layer[latest[name][0]].name
                raise ConfigError(f"layer {layer.name!r} makes blob {name!r}, which layer {owner!r} makes already")
            latest[name] = (at, index)
        for name, weight in zip(layer.top, layer.loss_weight):
            users[latest[name]] += bool(weight)
    _check_in_place(net, users, replaced)
    return Wiring(dict(users))


def _check_in_place(net: Any, users: Counter[Place], replaced: Sequence[tuple[Place, int, str]]) -> None:
    for place, at, name in replaced:
        if users[place] > 1:
            raise ConfigError(
                f"layer {net.layer[at].name!r} works in place on blob {name!r}, which is used elsewhere too: "
                "Caffe refuses this; give it a top of another name"
            )


def branches(layers: Sequence[LayerShapes], sources: Sequence[int]) -> list[set[int]]:
    """For each source, the layers that lead to it and not to all the others."""
    above = [_above(layers, source) for source in sources]
    common = set.intersection(*above) if above else set()
    return [layers_above - common for layers_above in above]


def _above(layers: Sequence[LayerShapes], source: int) -> set[int]:
    found, waiting = set(), [source]
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting += layers[at].sources
    return found


def rounding_hint(layers: Sequence[LayerShapes], sources: Sequence[int]) -> str:
    """The formulas of the windows of joined branches whose rounding matters, where one rounds up and another down."""
    told: dict[bool, str] = {}
    for at in sorted(set().union(*branches(layers, sources))):
        for window in layers[at].windows:
            if window.rest and window.up not in told:
                told[window.up] = f"{layers[at].name!r} {window.formula()}"
    if True not in told:
        return ""
    return f"; pooling rounds up and convolution down: {', '.join(told.values())}: set round_mode: FLOOR, or a pad"
