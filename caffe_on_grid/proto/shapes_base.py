"""What shape rules are made of: what a rule is given, what it makes, how it refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from caffe_on_grid.proto import schema

Shape = tuple[int, ...]
FLOAT = 4
"""Bytes of a value."""
INT_MAX = 2**31 - 1
"""Caffe's sizes are ints."""
Count = tuple[int, Optional[int]]
"""Fewest and most blobs; None: any number."""


class Refused(ValueError):
    """The rule of Caffe that a layer breaks; `shapes.infer` adds the layer and its bottoms."""


@dataclass(frozen=True)
class Window:
    """One spatial axis of a sliding window: how its size came about."""

    axis: int
    size: int
    extent: int
    """Values that the window covers, dilation included."""
    stride: int
    pad: int
    up: bool
    """Whether the division is rounded up."""
    out: int

    @property
    def rest(self) -> int:
        """What the division by the stride leaves: where it is 0, rounding makes no difference."""
        return (self.size + 2 * self.pad - self.extent) % self.stride

    def formula(self) -> str:
        """The size, as Caffe works it out."""
        name = "ceil" if self.up else "floor"
        return f"{name}(({self.size} + 2*{self.pad} - {self.extent}) / {self.stride}) + 1 = {self.out}"


@dataclass(frozen=True)
class Given:
    """A layer (LayerParameter) and its bottoms' shapes."""

    layer: Any
    bottoms: tuple[Shape, ...]

    @property
    def train(self) -> bool:
        """Whether the layer's phase is TRAIN."""
        return bool(self.layer.phase == schema.TRAIN)

    @property
    def first(self) -> Shape:
        """The shape of bottom 0."""
        return self.bottoms[0]

    @property
    def tops(self) -> int:
        """Number of tops in the prototxt."""
        return len(self.layer.top)


@dataclass(frozen=True)
class Made:
    """What a layer makes of its bottoms."""

    tops: tuple[Shape, ...]
    params: tuple[Shape, ...] = ()
    flops: int = 0
    """Forward: two for each multiply-add of matrix products; element by element work is not counted."""
    buffers: int = 0
    """Values (4 bytes) that the layer keeps for itself beside tops and parameters, forward and backward."""
    windows: tuple[Window, ...] = ()


Infer = Callable[[Given], Made]


@dataclass(frozen=True)
class Rule:
    """How a type of layer may be wired, and its shapes."""

    infer: Infer
    bottoms: Count = (1, 1)
    tops: Count = (1, 1)
    pairs: bool = False
    """As many tops as bottoms."""
    loss: bool = False
    """Its first top has loss weight 1 by default, and exists even if the prototxt names none."""
    in_place: bool = True
    """False: Caffe refuses a top that is its bottom."""
    backward: bool = True
    """False: gradients never pass through it."""
    learns: bool = True
    """Whether the solver changes its parameters."""
    shares: bool = False
    """Tops are the bottom's memory."""
    fillers: tuple[str, ...] = ()
    """Its parameter message, then that message's fillers in the order of the parameters."""


def need(holds: bool, rule: str) -> None:
    """Raise Refused with `rule` unless `holds`."""
    if not holds:
        raise Refused(rule)


def count(shape: Sequence[int]) -> int:
    """Number of values in a blob of `shape` (1 for a scalar)."""
    total = 1
    for size in shape:
        total *= size
    return total


def shown(shape: Shape) -> str:
    """`4x3x8x8`; `scalar` for no axes."""
    return "x".join(map(str, shape)) or "scalar"


def axis_of(axis: int, shape: Shape, what: str = "axis") -> int:
    """A canonical axis index: negatives count from the end."""
    need(-len(shape) <= axis < len(shape), f"{what} {axis} must be one of the {len(shape)} axes of {shown(shape)}")
    return axis % len(shape)


def legacy(shape: Shape, at: int) -> Shape:
    """The shape seen as num x channels x height x width, which Caffe does for blobs of up to four axes."""
    need(len(shape) <= 4, f"bottom {at} must have at most 4 axes (num, channels, height, width), not {shown(shape)}")
    return (*shape, 1, 1, 1, 1)[:4]


def planes(shape: Shape) -> None:
    """Refuse what is not num x channels x height x width."""
    need(len(shape) == 4, f"the input must have 4 axes (num, channels, height, width), not {len(shape)}")


def axis_or_dim(param: Any, old: str, shape: Shape) -> int:
    """The axis of Concat and Slice, from `axis` or from the unsigned field of old."""
    need(not (param.HasField(old) and param.HasField("axis")), f"axis and {old} exclude each other")
    return axis_of(int(getattr(param, old)) if param.HasField(old) else param.axis, shape, "axis")


def bias(given: bool, shape: Shape) -> tuple[Shape, ...]:
    """A bias blob, or none."""
    return (shape,) if given else ()


def same(given: Given) -> Made:
    """Tops like bottoms."""
    return Made(given.bottoms)


@dataclass(frozen=True)
class LayerShapes:
    """One layer: shapes, work of one forward pass, and bytes as Caffe holds them (float32)."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    top_shapes: tuple[Shape, ...]
    param_shapes: tuple[Shape, ...]
    loss_weights: tuple[float, ...]
    """One for each top."""
    flops: int
    """Two for each multiply-add of matrix products (convolutions, inner products, recurrent layers), forward; work
    element by element, pooling and normalisation are not counted. A backward pass takes about twice as much."""
    learnable: int
    """Parameters that the solver changes, counted with the layer that is the first to use them."""
    activation_bytes: int
    """Tops' values that are memory of their own: none in place, or where the layer shows its bottom's memory."""
    gradient_bytes: int
    """Gradients of the tops, and of the copies that Caffe makes for several users; TRAIN nets only."""
    parameter_bytes: int
    """Values of the parameters that this layer is the first to use; in a TRAIN net their gradients take as much."""
    buffer_bytes: int
    """What the layer keeps for itself: im2col columns, masks, probabilities, statistics."""
    windows: tuple[Window, ...]
    sources: tuple[int, ...]
    """For each bottom, the index (in NetShapes.layers) of the layer that makes it."""


@dataclass(frozen=True)
class NetShapes:
    """A net's layers and blobs, as far as they are known."""

    name: str
    train: bool
    layers: tuple[LayerShapes, ...]
    blobs: dict[str, Shape]
    unknown: tuple[str, ...] = ()
    """Layers whose shapes hang on what is not known here (`check` only)."""

    def total(self, field: str) -> int:
        """The sum of one of LayerShapes' numbers over the layers."""
        return sum(int(getattr(layer, field)) for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Parameters, shared ones once."""
        return self.total("parameter_bytes") // FLOAT

    @property
    def learnable(self) -> int:
        """Parameters that the solver changes."""
        return self.total("learnable")

    @property
    def flops(self) -> int:
        """Of one forward pass; see LayerShapes."""
        return self.total("flops")

    @property
    def parameter_gradient_bytes(self) -> int:
        """Gradients of all parameters, in a TRAIN net."""
        return self.total("parameter_bytes") if self.train else 0

    @property
    def bytes(self) -> int:
        """All of it: activations, gradients, parameters and buffers."""
        kinds = ("activation_bytes", "gradient_bytes", "parameter_bytes", "buffer_bytes")
        return sum(map(self.total, kinds)) + self.parameter_gradient_bytes
