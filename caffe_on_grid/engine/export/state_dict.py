"""A model as a PyTorch state_dict."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from caffe_on_grid.engine.api import Array
from caffe_on_grid.engine.export.parameters import Parameters
from caffe_on_grid.errors import ConfigError

Entries = dict[str, Array]


def _weighted(blobs: Sequence[Array], layer: Any) -> Entries:
    return dict(zip(("weight", "bias"), blobs))


def _linear(blobs: Sequence[Array], layer: Any) -> Entries:
    weight = blobs[0].T if layer.inner_product_param.transpose else blobs[0]
    return _weighted([weight, *blobs[1:]], layer)


def _batch_norm(blobs: Sequence[Array], layer: Any) -> Entries:
    """Caffe keeps sums and the factor to divide them by."""
    mean, variance = statistics(blobs)
    return {"running_mean": mean, "running_var": variance}


def statistics(blobs: Sequence[Array]) -> tuple[Array, Array]:
    """Mean and variance of a BatchNorm layer's blobs (sums, and a factor; 0 where it never trained)."""
    factor = blobs[2].reshape(-1)[0]
    share = np.float32(0 if factor == 0 else 1 / factor)
    return blobs[0] * share, blobs[1] * share


_ENTRIES: dict[str, Callable[[Sequence[Array], Any], Entries]] = {
    **dict.fromkeys(("Convolution", "Deconvolution", "ConvolutionDepthwise", "DepthwiseConvolution"), _weighted),
    **dict.fromkeys(("Bias", "Embed", "Normalize", "Parameter", "PReLU", "Scale"), _weighted),
    "BatchNorm": _batch_norm,
    "InnerProduct": _linear,
}
"""Types with parameters → what their blobs are called in PyTorch, and how they lie there."""


def entries(net: Any, parameters: Parameters) -> Entries:
    """`layer.weight`, `layer.bias`, BatchNorm's `layer.running_mean` and `layer.running_var`, in PyTorch's layouts.

    Raises ConfigError naming a layer whose parameters have no such form.
    """
    found: Entries = {}
    for layer in net.layer:
        blobs = parameters.get(layer.name)
        if blobs and layer.type not in _ENTRIES:
            raise ConfigError(f"layer {layer.name!r} ({layer.type}): its parameters have no form in a state_dict")
        named = _ENTRIES[layer.type](blobs, layer) if blobs else {}
        if layer.type == "Bias":
            named = {"bias": named["weight"]} if named else {}
        found.update((f"{layer.name}.{name}", np.ascontiguousarray(values)) for name, values in named.items())
    return found


def content(net: Any, parameters: Parameters) -> bytes:
    """The file that torch.load reads; raises ImportError without torch."""
    torch = importlib.import_module("torch")
    file = io.BytesIO()
    torch.save({name: torch.from_numpy(values) for name, values in entries(net, parameters).items()}, file)
    return file.getvalue()
