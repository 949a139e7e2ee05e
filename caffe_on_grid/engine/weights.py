"""Weights by layer name, as Caffe's CopyTrainedLayersFrom and Restore take them; refusals in words, not by abort.

A net's `targets` are its layers' parameter blobs by layer name: anything with a `shape`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from caffe_on_grid.engine.api import Array, WeightsReport
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, weights

Targets = Mapping[str, Sequence[Any]]
LARGEST = 2**31 - 1
"""Most bytes of a binary protobuf message."""
_ADVICE = "To learn this layer's parameters from scratch rather than copying from a saved net, rename the layer."


def read(path: Path) -> weights.StoredModel:
    """What a .caffemodel holds, its numbers still in the mapped file; raises ConfigError where it cannot be read."""
    return weights.read_model(contents(path, "weights"), f"weights {path}")


def contents(path: Path, what: str) -> Any:
    """The bytes of a binary file, mapped; raises ConfigError for one that cannot be opened or is too large."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise ConfigError(f"{what} {path}: {size} bytes; a binary one has at most 2 GiB: give it as HDF5 (.h5)")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise ConfigError(f"{what} {path}: {error.strerror}") from error


def copy(targets: Targets, model: Any, where: str, assign: Callable[[Any, Array], None]) -> WeightsReport:
    """`assign(target, values)` for every blob of `model` in the net's layer of that name; for none if one does not fit.

    The values have the target's shape.
    """
    sources = check_model(targets, model, where)
    for layer in sources:
        for index, (source, target) in enumerate(zip(layer.blobs, targets[layer.name])):
            values = weights.blob_array(source, f"{where}: layer {layer.name}, blob {index}")[1]
            assign(target, values.reshape(tuple(target.shape)))
    names = {layer.name for layer in model.layer}
    return WeightsReport(
        loaded=tuple(layer.name for layer in sources if layer.blobs),
        ignored=tuple(layer.name for layer in model.layer if layer.name not in targets),
        fresh=tuple(name for name, blobs in targets.items() if len(blobs) and name not in names),
    )


def check_model(targets: Targets, model: Any, where: str) -> list[Any]:
    """The layers of `model` that the net has too; raises ConfigError if one of them cannot be copied."""
    sources = [layer for layer in model.layer if layer.name in targets]
    for layer in sources:
        check(layer.name, layer.blobs, targets[layer.name], where)
    return sources


def check(name: str, sources: Any, targets: Any, where: str) -> None:
    """Raise ConfigError, in Caffe's words, if layer `name`'s blobs cannot be copied."""
    if len(sources) != len(targets):
        counts = f"the file has {len(sources)}, the net {len(targets)}"
        raise ConfigError(f"{where}: Incompatible number of blobs for layer {name} ({counts})")
    for index, (source, target) in enumerate(zip(sources, targets)):
        if not matches(source, tuple(target.shape)):
            stored = _words(weights.shape_of(source))
            shapes = f"Source param shape is {stored}; target param shape is {_words(target.shape)}."
            raise ConfigError(
                f"{where}: Cannot copy param {index} weights from layer '{name}'; shape mismatch.  {shapes} {_ADVICE}"
            )


def matches(source: Any, target: tuple[int, ...]) -> bool:
    """Whether a stored blob fits: equal shapes, or the old four numbers equal to the shape padded in front."""
    blob = weights.as_blob(source)
    if blob.legacy:
        return len(target) <= 4 and blob.shape == (1,) * (4 - len(target)) + target
    return blob.shape == target


def _words(shape: Any) -> str:
    """Caffe's shape_string: `64 1 5 5 (1600)`."""
    count = 1
    for size in shape:
        count *= size
    return "".join(f"{size} " for size in shape) + f"({count})"


def check_state(state: Path, learnable: list[tuple[int, ...]], histories: int) -> weights.StoredState:
    """What a binary .solverstate holds; raises ConfigError unless its history fits the learnable shapes.

    `histories` is how many blobs the solver keeps for each learnable blob.
    """
    stored = weights.read_state(contents(state, "snapshot"), f"snapshot {state}")
    expected = learnable * histories
    if len(stored.history) != len(expected):
        counts = f"the snapshot has {len(stored.history)}, the solver keeps {len(expected)}"
        raise ConfigError(f"snapshot {state}: Incorrect length of history blobs ({counts}): another net or solver type")
    for index, (blob, shape) in enumerate(zip(stored.history, expected)):
        if not matches(blob, shape):
            shapes = f"{_words(blob.shape)} in the snapshot, {_words(shape)} in the solver"
            raise ConfigError(f"snapshot {state}: history blob {index} has another shape: {shapes}")
    return stored


def rename_model(state: Path, model: str) -> None:
    """Make the binary .solverstate `state` name `model` as its learned net."""
    message = schema.SolverState.FromString(state.read_bytes())
    message.learned_net = model
    state.write_bytes(message.SerializeToString())
