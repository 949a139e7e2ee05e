"""What every layer of the torch engine is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Optional, Union

import numpy as np
import torch

from caffe_on_grid.engine.torch import fillers
from caffe_on_grid.engine.torch.parameter import Parameter
from caffe_on_grid.errors import ConfigError, DataError
from caffe_on_grid.proto import schema, weights

Shape = tuple[int, ...]
Tops = Union[torch.Tensor, tuple[torch.Tensor, ...]]
Count = tuple[int, Optional[int]]
"""Fewest and most blobs; None: any number."""

BROKEN = (RuntimeError, ArithmeticError, ValueError, MemoryError)
"""What torch raises for sizes and values that it cannot take, or has no memory for."""

FLT_MIN = float(np.finfo(np.float32).tiny)
FLT_MAX = float(np.finfo(np.float32).max)


@dataclass
class Context:
    """What the layers of a net have in common."""

    phase: int
    device: torch.device
    stream: Any
    """random.Stream: Caffe's generator."""
    strict: bool = False
    """Reproduce the gradients of Caffe's own faults."""
    pending: list[tuple[torch.Tensor, str]] = field(default_factory=list)
    """On a GPU: flags of bad labels and the words for them, looked at when the device is idle anyway."""

    @property
    def train(self) -> bool:
        """Whether the phase is TRAIN."""
        return self.phase == schema.TRAIN


class Layer:
    """One layer: `setup` once, `reshape` whenever bottom shapes change, `forward` each pass; autograd goes back.

    `weights` are the parameters as forward uses them: under autograd or not, as the net's backward plan says.
    """

    bottoms: Count = (1, 1)
    tops: Count = (1, 1)
    is_loss = False
    """Its first top has loss weight 1 by default."""
    not_forced: frozenset[int] = frozenset()
    """Bottoms that force_backward does not reach."""
    no_gradient: frozenset[int] = frozenset()
    """Bottoms to which Caffe cannot propagate down."""
    backward = True
    """False: there is no backward pass at all."""
    shares = False
    """Its tops share the memory of its bottom in Caffe."""
    dynamic = False
    """Top shapes are known only after forward."""
    in_place_ok = False
    """Whether forward may overwrite its bottom if the net sets `in_place`."""
    keeps_top = False
    """In Caffe, backward reads the top again; an in-place layer after it changes what is read."""

    def __init__(self, spec: Any, context: Context) -> None:
        self.spec = spec
        self.name: str = spec.name
        self.type: str = spec.type
        self.context = context
        self.params: list[Parameter] = []
        self.weights: list[torch.Tensor] = []
        self.in_place = False
        self.seen: list[Shape] = []
        """Bottom shapes of the last `reshape`."""
        self.buffers: Optional[Callable[[], tuple[torch.Tensor, torch.Tensor]]] = None
        """Strict mode: what bottom 0 and top 0 hold in the end, in-place changes included."""

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Read the parameters that cannot change and make the parameter blobs."""

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Shapes of the tops; raises ConfigError for shapes that the layer cannot take."""
        return [shapes[0]]

    def forward(self, *bottoms: torch.Tensor) -> Tops:
        """The tops: a tensor, or a tuple where there is not exactly one."""
        raise NotImplementedError(self.type)

    def fail(self, words: str) -> NoReturn:
        """Raise a ConfigError about this layer."""
        raise ConfigError(f"layer '{self.name}' ({self.type}): {words}")

    def check(self, holds: bool, words: str) -> None:
        """Raise a ConfigError about this layer unless `holds`."""
        if not holds:
            self.fail(words)

    def broken(self, error: Exception) -> NoReturn:
        """Raise one of BROKEN as a ConfigError about this layer; a user's own and a device's stay as they are."""
        if self.type == "Python" or "CUDA error" in str(error):
            raise error
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"layer '{self.name}' ({self.type}): cannot be computed: {said}") from error

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """A canonical axis index: negatives count from the end."""
        self.check(-rank <= axis < rank, f"{what} {axis} out of range for a blob of {rank} axes")
        return axis % rank if rank else 0

    def add_param(self, shape: Sequence[int], filler: Any = None, learns: bool = True) -> Parameter:
        """Make the next parameter blob: the layer's own `blobs` if it has any, else filled (zeros without a filler)."""
        at = len(self.params)
        if self.spec.blobs:
            values = self._given(at)
        elif filler is None:
            values = np.zeros(tuple(shape), np.float32)
        else:
            values = self._filled(filler, tuple(shape))
        data = torch.from_numpy(np.ascontiguousarray(values, np.float32).reshape(values.shape))
        self.params.append(Parameter(f"{self.name}/{at}", data.to(self.context.device), learns))
        return self.params[-1]

    def _filled(self, filler: Any, shape: Shape) -> Any:
        try:
            return fillers.fill(filler, shape, self.context.stream)
        except ConfigError as error:
            self.fail(str(error))

    def _given(self, at: int) -> Any:
        self.check(at < len(self.spec.blobs), f"the net gives {len(self.spec.blobs)} blobs, expected more")
        shape, values = weights.blob_array(self.spec.blobs[at], f"layer '{self.name}', blob {at}")
        return np.asarray(values, np.float32).reshape(shape)

    def labels(self, blob: torch.Tensor, classes: int, ignore: Optional[int] = None, what: str = "label") -> Any:
        """The blob as int64, truncated as Caffe casts; raises DataError for what is not in 0..classes−1 or `ignore`."""
        found = blob.detach().to(torch.int64)
        bad = (found < 0) | (found >= classes)
        if ignore is not None:
            bad &= found != ignore
        words = f"layer '{self.name}' ({self.type}): {what} out of range 0..{classes - 1}"
        if not found.is_cuda:
            if bad.any():
                at = int(bad.flatten().nonzero()[0])
                raise DataError(f"{words}: value {found.flatten()[at].item()} at index {at}: check the data's labels")
            return found
        self.context.pending.append((bad.any(), words))
        return found if ignore is not None else found.clamp(0, classes - 1)


class Elementwise(Layer):
    """Top like bottom. `gradient` is Caffe's own formula, which strict mode applies to what the buffers hold."""

    in_place_capable = True

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """The function."""
        raise NotImplementedError(self.type)

    def gradient(self, x: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """Caffe's backward formula from bottom data, top data and top diff."""
        raise NotImplementedError(self.type)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`compute`, in strict mode with Caffe's own backward pass."""
        if self.buffers is not None and x.requires_grad:
            return CaffeGradient.apply(x, self)
        return self.compute(x)


class CaffeGradient(torch.autograd.Function):
    """Forward as the layer computes; backward by Caffe's formula from the blobs' buffers as they are by then."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Elementwise) -> torch.Tensor:
        """`layer.compute`, not in place."""
        ctx.layer = layer
        y = layer.compute(x)
        return y.clone() if y is x else y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Optional[torch.Tensor], None]:
        """`layer.gradient` of the buffers' last content."""
        x, y = ctx.layer.buffers()
        return ctx.layer.gradient(x.detach().reshape(dy.shape), y.detach().reshape(dy.shape), dy), None


def count(shape: Sequence[int]) -> int:
    """Product of the axes (1 for none)."""
    total = 1
    for dim in shape:
        total *= dim
    return total
