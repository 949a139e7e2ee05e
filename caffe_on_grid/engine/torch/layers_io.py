"""Layers without bottoms, and output to files: Input, DummyData, Parameter, HDF5Output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from caffe_on_grid.engine.torch import fillers
from caffe_on_grid.engine.torch.layers_base import Layer, Shape, Tops
from caffe_on_grid.engine.torch.parameter import Parameter
from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.proto import schema


def _each(layer: Layer, given: Sequence[Any], what: str) -> list[Any]:
    """One of `given` for each top: as they are, or a single one for all."""
    tops = len(layer.spec.top)
    layer.check(len(given) in (1, tops), f"must specify {what} once, or once per top blob ({tops})")
    return list(given) * tops if len(given) == 1 else list(given)


class Input(Layer):
    """Blobs whose values the caller gives."""

    bottoms = (0, 0)
    tops = (1, None)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """`shape` once, or for each top; without it the caller decides."""
        given = [tuple(int(d) for d in s.dim) for s in self.spec.input_param.shape]
        return _each(self, given, "shape") if given else [()] * len(self.spec.top)


class DummyData(Layer):
    """Tops filled by fillers: a constant one once, any other in each pass, from the net's stream."""

    bottoms = (0, 0)
    tops = (1, None)

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Fill what is constant."""
        p = self.spec.dummy_data_param
        self.fillers = _each(self, list(p.data_filler) or [schema.message("FillerParameter")()], "data_filler")
        self.shapes = self._shapes()
        self.fixed = [self._fill(i) if f.type == "constant" else None for i, f in enumerate(self.fillers)]

    def _shapes(self) -> list[Shape]:
        p = self.spec.dummy_data_param
        legacy = [p.num, p.channels, p.height, p.width]
        self.check(not (p.shape and any(legacy)), "both shape and num/channels/height/width were specified")
        if p.shape:
            return _each(self, [tuple(int(d) for d in s.dim) for s in p.shape], "shape")
        sides = [_each(self, list(side), "num, channels, height and width") for side in legacy]
        return [tuple(shape) for shape in zip(*sides)]

    def _fill(self, top: int) -> torch.Tensor:
        values = fillers.fill(self.fillers[top], self.shapes[top], self.context.stream)
        return torch.from_numpy(np.ascontiguousarray(values)).reshape(self.shapes[top]).to(self.context.device)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """As given."""
        return self.shapes

    def forward(self, *bottoms: torch.Tensor) -> Tops:
        """Draw anew what is not constant."""
        found = [self._fill(i) if fixed is None else fixed for i, fixed in enumerate(self.fixed)]
        return tuple(found) if len(found) > 1 else found[0]


class _Overwrite(torch.autograd.Function):
    """A parameter as a blob: their gradients are one buffer in Caffe, so a backward pass overwrites, never adds."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, parameter: Parameter) -> torch.Tensor:
        """The values, as a view."""
        ctx.parameter = parameter
        return leaf.view(leaf.shape)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[None, None]:
        """Into the parameter's diff."""
        ctx.parameter.diff.copy_(dy)
        return None, None


class ParameterLayer(Layer):
    """A learnable blob as top, zero at first; with iter_size its gradient is that of the last pass, as in Caffe."""

    bottoms = (0, 0)

    def setup(self, shapes: Sequence[Shape]) -> None:
        """The blob."""
        self.add_param(tuple(int(d) for d in self.spec.parameter_param.shape.dim))

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The blob's shape."""
        return [tuple(int(d) for d in self.spec.parameter_param.shape.dim)]

    def forward(self, *bottoms: torch.Tensor) -> torch.Tensor:
        """The parameter itself."""
        leaf = self.weights[0]
        return _Overwrite.apply(leaf, self.params[0]) if leaf.requires_grad else leaf


class HDF5Output(Layer):
    """Writes its bottoms as datasets "data" and "label"; each pass appends (Caffe dies at a second one)."""

    bottoms = (2, 2)
    tops = (0, 0)
    backward = False

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Begin the file."""
        try:
            import h5py
        except ImportError as error:
            raise EnvironmentFault(f"layer '{self.name}' (HDF5Output) needs h5py, which this Python lacks") from error
        self.check(self.spec.hdf5_output_param.HasField("file_name"), "hdf5_output_param needs file_name")
        self.open = h5py.File
        self.path = Path(self.spec.hdf5_output_param.file_name)
        with self.open(self.path, "w"):
            pass

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """As many labels as samples."""
        self.check(shapes[0][:1] == shapes[1][:1], f"bottoms of {shapes[0][:1]} and {shapes[1][:1]} samples")
        return []

    def forward(self, data: torch.Tensor, label: torch.Tensor) -> Tops:
        """Four axes, as Caffe writes them."""
        with self.open(self.path, "a") as file:
            for name, blob in (("data", data), ("label", label)):
                self._append(file, name, blob.detach().cpu().numpy())
        return ()

    def _append(self, file: Any, name: str, values: Any) -> None:
        four = values.reshape(*values.shape[:4], *[1] * (4 - values.ndim)) if values.ndim < 4 else values
        if name not in file:
            file.create_dataset(name, data=four, maxshape=(None, *four.shape[1:]))
            return
        before = file[name].shape[0]
        file[name].resize(before + four.shape[0], axis=0)
        file[name][before:] = four
