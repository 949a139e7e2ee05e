"""The module named `caffe` that users' Python layers import under the torch engine: pycaffe's layer protocol."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn, Optional

import numpy as np

from caffe_on_grid.engine.torch.layers_base import Shape, count
from caffe_on_grid.proto import schema


class Blob:
    """A blob as pycaffe shows it: `data` and `diff` are float32 arrays that are changed in place."""

    def __init__(self, shape: Sequence[int] = ()) -> None:
        self._shape: Shape = tuple(shape)
        self._data: Optional[Any] = None
        self._diff: Optional[Any] = None

    @property
    def data(self) -> Any:
        """The values."""
        if self._data is None:
            self._data = np.zeros(self._shape, np.float32)
        return self._data

    @property
    def diff(self) -> Any:
        """The gradient."""
        if self._diff is None:
            self._diff = np.zeros(self._shape, np.float32)
        return self._diff

    @property
    def shape(self) -> Shape:
        """All axes."""
        return self._shape

    @property
    def count(self) -> int:
        """Number of values."""
        return count(self._shape)

    def _legacy(self, axis: int) -> int:
        return self._shape[axis] if axis < len(self._shape) else 1

    num = property(lambda self: self._legacy(0), doc="Axis 0.")
    channels = property(lambda self: self._legacy(1), doc="Axis 1, or 1.")
    height = property(lambda self: self._legacy(2), doc="Axis 2, or 1.")
    width = property(lambda self: self._legacy(3), doc="Axis 3, or 1.")

    def reshape(self, *shape: int) -> None:
        """Change the shape; the values stay if there are as many."""
        new = tuple(int(dim) for dim in shape)
        if new == self._shape:
            return
        same = count(new) == count(self._shape)
        self._data = self._data.reshape(new) if same and self._data is not None else None
        self._diff = self._diff.reshape(new) if same and self._diff is not None else None
        self._shape = new

    def show(self, data: Any, diff: Optional[Any] = None) -> None:
        """Show these arrays from now on; the gradient's array stays if its shape fits and none is given."""
        if diff is not None or data.shape != self._shape:
            self._diff = diff
        self._data, self._shape = data, data.shape


class Blobs(list):  # type: ignore[type-arg]
    """A layer's parameter blobs."""

    def add_blob(self, *shape: int) -> None:
        """Append a blob of zeros."""
        self.append(Blob(shape))


class Layer:
    """Base of users' layers: `setup`, `reshape`, `forward(bottom, top)`, `backward(top, propagate_down, bottom)`."""

    def __init__(self, spec: Any = None) -> None:
        self.param_str: str = "" if spec is None else spec.python_param.param_str
        self.phase: int = schema.TEST if spec is None else spec.phase
        self.type = "Python"
        self.blobs = Blobs()


class _Shim(ModuleType):
    """Says what it lacks."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the torch engine's `caffe` module has no {name!r}: it offers Python layers only (Layer, TRAIN, TEST)"
        )


def install() -> None:
    """Put the module into sys.modules, unless a module `caffe` is loaded already."""
    if "caffe" in sys.modules:
        return
    module = _Shim("caffe", "pycaffe's layer protocol, by the torch engine of caffe_on_grid")
    module.__dict__.update(Layer=Layer, TRAIN=schema.TRAIN, TEST=schema.TEST, __path__=[])
    sys.modules["caffe"] = module
