"""Passing on that gradients are final, while the backward pass is still under way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from caffe_on_grid.engine.api import Hooks


class Ready:
    """What a net calls with ranges of its own parameters; `hooks` gets those of the ones that learn.

    A GPU's backward pass runs in another thread and long before the device is done: there (`deferred`) each range is
    noted with an event, and `finish` passes them on in order, in the thread that steps, as the device gets to them;
    copies to the host then run beside the layers that are still to come.
    """

    def __init__(self, places: Sequence[int], hooks: Hooks, grads: Any, deferred: bool) -> None:
        """`places[i]`: how many of the net's parameters before i learn."""
        self._places, self._hooks, self._grads, self._deferred = places, hooks, grads, deferred
        self._noted: list[tuple[int, int, Any]] = []

    def __call__(self, first: int, last: int) -> None:
        """Parameters first..last of the net are final."""
        low, high = self._places[first], self._places[last + 1] - 1
        if low > high:
            return
        if not self._deferred:
            self._hooks.on_ready(low, high)
            return
        event = torch.cuda.Event() if torch.cuda.is_available() else None
        if event is not None:
            event.record()
        self._noted.append((low, high, event))

    def finish(self) -> None:
        """Pass on what was noted."""
        for low, high, event in self._noted:
            self._grads.after(event)
            self._hooks.on_ready(low, high)
        self._grads.after(None)
