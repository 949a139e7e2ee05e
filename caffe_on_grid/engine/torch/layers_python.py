"""Python layers: users' own classes, by pycaffe's protocol, over numpy views of the blobs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Optional

import torch

from caffe_on_grid.engine.torch import shim
from caffe_on_grid.engine.torch.layers_base import Layer, Shape, Tops
from caffe_on_grid.engine.torch.parameter import Parameter
from caffe_on_grid.errors import ConfigError


class Python(Layer):
    """`python_param`: module, layer, param_str. The class's `reshape` is called before each `forward`.

    On a CPU the user's arrays are the blobs' own memory; on a GPU they are copies, written back after each call.
    """

    bottoms = (0, None)
    tops = (0, None)
    dynamic = True

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Make the user's object and let it set up; its blobs become parameters."""
        self.user = self._class()(self.spec)
        self.user.phase = self.context.phase
        self.user.param_str = self.spec.python_param.param_str
        names = list(self.spec.bottom)
        self.bottom = [shim.Blob(shape) for shape in shapes]
        self.inplace = [i for i, name in enumerate(self.spec.top) if i < len(names) and names[i] == name]
        self.top = [self.bottom[i] if i in self.inplace else shim.Blob() for i in range(len(self.spec.top))]
        self.user.setup(self.bottom, self.top)
        for at, blob in enumerate(self.user.blobs):
            values = torch.from_numpy(blob.data.copy()).to(self.context.device)
            self.params.append(Parameter(f"{self.name}/{at}", values))

    def _class(self) -> Any:
        shim.install()
        p = self.spec.python_param
        try:
            return getattr(importlib.import_module(p.module), p.layer)
        except ImportError as error:
            raise ConfigError(
                f"layer '{self.name}' (Python): module {p.module!r} cannot be imported: {error}"
            ) from error
        except AttributeError:
            raise ConfigError(f"layer '{self.name}' (Python): module {p.module!r} has no class {p.layer!r}") from None

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """As the user's object reshapes its tops."""
        for blob, shape in zip(self.bottom, shapes):
            blob.reshape(*shape)
        self.user.reshape(self.bottom, self.top)
        return [blob.shape for blob in self.top]

    def forward(self, *bottoms: torch.Tensor) -> Tops:
        """Through autograd only if a gradient is wanted."""
        grad = torch.is_grad_enabled() and any(t.requires_grad for t in (*bottoms, *self.weights))
        tops = _Call.apply(self, len(bottoms), *bottoms, *self.weights) if grad else self.call(bottoms)
        return tops if len(tops) != 1 else tops[0]

    def call(self, bottoms: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The user's forward."""
        for i, (blob, x) in enumerate(zip(self.bottom, bottoms)):
            values = x.detach().clone() if i in self.inplace else x.detach().contiguous()
            blob.show(values.cpu().numpy())
        self._show_params()
        self.user.reshape(self.bottom, self.top)
        self.user.forward(self.bottom, self.top)
        self._take_params()
        device = self.context.device
        return tuple(torch.from_numpy(blob.data.copy()).to(device) for blob in self.top)

    def call_back(self, diffs: Sequence[Optional[torch.Tensor]], wanted: Sequence[bool]) -> list[Any]:
        """The user's backward: gradients of the bottoms that are wanted."""
        for blob, diff in zip(self.top, diffs):
            blob.diff[...] = 0 if diff is None else diff.detach().cpu().numpy()
        self._show_params()
        self.user.backward(self.top, list(wanted), self.bottom)
        self._take_params()
        device = self.context.device
        return [torch.from_numpy(b.diff.copy()).to(device) if w else None for b, w in zip(self.bottom, wanted)]

    def _show_params(self) -> None:
        for blob, parameter in zip(self.user.blobs, self.params):
            shape = blob.shape
            blob.show(parameter.data.cpu().numpy().reshape(shape), parameter.diff.cpu().numpy().reshape(shape))

    def _take_params(self) -> None:
        """On a GPU: what the user's object wrote; on a CPU it wrote into the parameters themselves."""
        if self.context.device.type == "cpu":
            return
        for blob, parameter in zip(self.user.blobs, self.params):
            parameter.assign(torch.from_numpy(blob.data))
            parameter.diff.copy_(torch.from_numpy(blob.diff).reshape(parameter.shape))


class _Call(torch.autograd.Function):
    """One pass through the user's object; parameters are inputs so that backward runs for them alone too."""

    @staticmethod
    def forward(ctx: Any, layer: Python, bottoms: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tops."""
        ctx.layer, ctx.bottoms = layer, bottoms
        return layer.call(tensors[:bottoms])

    @staticmethod
    def backward(ctx: Any, *diffs: Optional[torch.Tensor]) -> tuple[Any, ...]:
        """The user's object adds to its blobs' diffs itself."""
        wanted = ctx.needs_input_grad[2 : 2 + ctx.bottoms]
        found = ctx.layer.call_back(diffs, wanted)
        return (None, None, *found, *[None] * (len(ctx.needs_input_grad) - 2 - ctx.bottoms))
