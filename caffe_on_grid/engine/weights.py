"""Weights by layer name, as Caffe's CopyTrainedLayersFrom and Restore take them; refusals in words, not by abort."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from caffe_on_grid.engine.api import WeightsReport
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, weights

_LEGACY = ("num", "channels", "height", "width")
_ADVICE = "To learn this layer's parameters from scratch rather than copying from a saved net, rename the layer."


def read(path: Path) -> Any:
    """The NetParameter in a .caffemodel, in the current format; raises ConfigError where it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"weights {path}: {error.strerror}") from error
    return weights.read_model(data)


def copy(net: Any, model: Any, where: str) -> WeightsReport:
    """Copy every blob of `model` into the pycaffe `net`'s layer of that name; nothing is changed if one cannot be."""
    targets = dict(zip(net._layer_names, net.layers))
    sources = check_model(net, model, where)
    for layer in sources:
        for source, target in zip(layer.blobs, targets[layer.name].blobs):
            target.data[...] = weights.blob_array(source)[1].reshape(target.data.shape)
    names = {layer.name for layer in model.layer}
    return WeightsReport(
        loaded=tuple(layer.name for layer in sources if layer.blobs),
        ignored=tuple(layer.name for layer in model.layer if layer.name not in targets),
        fresh=tuple(n for n, layer in targets.items() if len(layer.blobs) and n not in names),
    )


def check_model(net: Any, model: Any, where: str) -> list[Any]:
    """The layers of `model` that the net has too; raises ConfigError if one of them cannot be copied."""
    targets = dict(zip(net._layer_names, net.layers))
    sources = [layer for layer in model.layer if layer.name in targets]
    for layer in sources:
        check(layer.name, layer.blobs, targets[layer.name].blobs, where)
    return sources


def check(name: str, sources: Any, targets: Any, where: str) -> None:
    """Raise ConfigError, in Caffe's words, if layer `name`'s blobs cannot be copied."""
    if len(sources) != len(targets):
        counts = f"the file has {len(sources)}, the net {len(targets)}"
        raise ConfigError(f"{where}: Incompatible number of blobs for layer {name} ({counts})")
    for index, (source, target) in enumerate(zip(sources, targets)):
        if not matches(source, tuple(target.shape)):
            shapes = f"Source param shape is {_words(_shape(source))}; target param shape is {_words(target.shape)}."
            raise ConfigError(
                f"{where}: Cannot copy param {index} weights from layer '{name}'; shape mismatch.  {shapes} {_ADVICE}"
            )


def matches(source: Any, target: tuple[int, ...]) -> bool:
    """Whether a BlobProto fits a blob: equal shapes, or the old four numbers equal to the shape padded in front."""
    if any(source.HasField(field) for field in _LEGACY):
        return len(target) <= 4 and _shape(source) == (1,) * (4 - len(target)) + target
    return _shape(source) == target


def _shape(blob: Any) -> tuple[int, ...]:
    if any(blob.HasField(field) for field in _LEGACY):
        return tuple(getattr(blob, field) for field in _LEGACY)
    return tuple(blob.shape.dim)


def _words(shape: Any) -> str:
    """Caffe's shape_string: `64 1 5 5 (1600)`."""
    count = 1
    for size in shape:
        count *= size
    return "".join(f"{size} " for size in shape) + f"({count})"


def check_state(state: Path, learnable: list[tuple[int, ...]], histories: int) -> Path:
    """The model that a binary .solverstate names; raises ConfigError unless its history fits the learnable shapes.

    `histories` is how many blobs the solver keeps for each learnable blob.
    """
    try:
        message = schema.SolverState.FromString(state.read_bytes())
    except OSError as error:
        raise ConfigError(f"snapshot {state}: {error.strerror}") from error
    except DecodeError as error:
        raise ConfigError(f"snapshot {state}: not a .solverstate: {error}") from error
    expected = learnable * histories
    if len(message.history) != len(expected):
        counts = f"the snapshot has {len(message.history)}, the solver keeps {len(expected)}"
        raise ConfigError(f"snapshot {state}: Incorrect length of history blobs ({counts}): another net or solver type")
    for index, (blob, shape) in enumerate(zip(message.history, expected)):
        if not matches(blob, shape):
            shapes = f"{_words(_shape(blob))} in the snapshot, {_words(shape)} in the solver"
            raise ConfigError(f"snapshot {state}: history blob {index} has another shape: {shapes}")
    return Path(message.learned_net)


def rename_model(state: Path, model: str) -> None:
    """Make the binary .solverstate `state` name `model` as its learned net."""
    message = schema.SolverState.FromString(state.read_bytes())
    message.learned_net = model
    state.write_bytes(message.SerializeToString())
