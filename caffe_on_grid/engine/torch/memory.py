"""Where the engine's tensors meet numpy arrays: shared memory on a CPU, pinned copies on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union, overload

import numpy as np
import torch

from caffe_on_grid.engine.api import Array, Floats
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec.codec import suggestion


class Views(Sequence[Floats]):
    """Arrays of tensors, made when one is asked for.

    On a CPU they share the tensors' memory. Elsewhere (`copies`) asking for one copies it into pinned host memory, and
    `give_back` copies all that were asked for back to the device, changed or not: what nobody looks at never moves.
    """

    def __init__(self, count: int, tensor: Callable[[int], torch.Tensor], copies: bool) -> None:
        """`tensor(i)` is the present tensor i."""
        self._count, self._tensor, self._copies = count, tensor, copies
        self._host: dict[int, torch.Tensor] = {}
        self._lent: set[int] = set()
        self._beside: Optional[Any] = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Floats: ...

    @overload
    def __getitem__(self, index: slice) -> list[Floats]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[Floats, list[Floats]]:
        if isinstance(index, slice):
            return [self._array(at) for at in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"blob {index} of {self._count}")
        return self._array(index % self._count)

    def _array(self, at: int) -> Floats:
        if self._copies and at not in self._lent:
            self._lend(at, self._tensor(at))
        array: Floats = (self._host[at] if self._copies else self._tensor(at)).numpy()
        return array

    def _lend(self, at: int, tensor: torch.Tensor) -> None:
        if at not in self._host:
            self._host[at] = torch.empty(tensor.shape, pin_memory=tensor.is_cuda)
        with torch.cuda.stream(self._beside):  # no stream: the present one
            self._host[at].copy_(tensor)  # returns when it is done
        self._lent.add(at)

    def after(self, event: Optional[Any]) -> None:
        """Copy from the device in a stream of its own that waits for this event alone; None: in the present stream."""
        if event is None:
            self._beside = None
            return
        self._beside = torch.cuda.Stream()
        self._beside.wait_event(event)

    def give_back(self) -> None:
        """From here on the device's values count; earlier copies are not looked at any more."""
        for at in self._lent:
            self._tensor(at).copy_(self._host[at], non_blocking=True)
        if self._lent and self._tensor(0).is_cuda:
            torch.cuda.current_stream().synchronize()  # the host's memory may be written again
        self._lent.clear()


class Inputs:
    """Own memory for a net's inputs, filled from batches; an input that a batch lacks keeps its last values."""

    def __init__(self, shapes: Mapping[str, Sequence[int]], device: torch.device) -> None:
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._device = device
        self._host = {name: self._buffer(shape) for name, shape in self._shapes.items()}
        self._moved: Optional[Any] = None

    def _buffer(self, shape: Sequence[int]) -> torch.Tensor:
        return torch.zeros(tuple(shape), pin_memory=self._device.type == "cuda")

    def take(self, blobs: Mapping[str, Array], any_batch: bool = False) -> dict[str, torch.Tensor]:
        """The inputs on the device; raises ConfigError for a wrong name or shape (`any_batch`: the first axis is free).

        `blobs` may be changed once this returns.
        """
        if self._moved is not None:
            self._moved.synchronize()  # the last batch has left the pinned memory
        for name, array in blobs.items():
            self._check(name, array, any_batch)
            if tuple(self._host[name].shape) != array.shape:
                self._host[name] = self._buffer(array.shape)
            np.copyto(self._host[name].numpy(), array, casting="unsafe")
        if self._device.type != "cuda":
            return dict(self._host)
        moved = {name: buffer.to(self._device, non_blocking=True) for name, buffer in self._host.items()}
        self._moved = torch.cuda.Event()
        self._moved.record()
        return moved

    def _check(self, name: str, array: Array, any_batch: bool) -> None:
        if name not in self._shapes:
            known = ", ".join(self._shapes)
            raise ConfigError(f"the net has no input {name!r}{suggestion(name, self._shapes)}; it has: {known}")
        wanted = self._shapes[name]
        free = 1 if any_batch and wanted and array.ndim else 0
        if array.shape[free:] != wanted[free:] or array.ndim != len(wanted):
            raise ConfigError(f"input {name!r}: the net expects shape {wanted}, got {array.shape}")


def assign(tensor: torch.Tensor, values: Array) -> None:
    """Copy values of its shape, read-only ones too, into a tensor."""
    if tensor.is_cuda:
        tensor.copy_(torch.from_numpy(np.array(values, np.float32)))
    else:
        np.copyto(tensor.numpy(), values)


def copied(tensor: torch.Tensor) -> Floats:
    """A copy as an array."""
    array: Floats = tensor.detach().cpu().numpy()
    return array.copy() if not tensor.is_cuda else array
