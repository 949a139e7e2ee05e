"""Caffe's HDF5 files (.caffemodel.h5, .solverstate.h5) in Caffe's own layout; h5py is imported when one is met."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from caffe_on_grid.engine.api import Array, Floats
from caffe_on_grid.errors import ConfigError, EnvironmentFault

GROUP, DATASET = "keys", "shape"
"""What only a group, or only a dataset, has."""


def _library(path: Path) -> Any:
    try:
        return importlib.import_module("h5py")
    except ImportError as error:
        raise EnvironmentFault(
            f"{path}: HDF5 files need h5py, which this Python lacks ({error}): name a runtime that has it "
            "with --runtime, PyTorch's or Caffe's full one"
        ) from error


@contextmanager
def _opened(path: Path, what: str) -> Iterator[Any]:
    """The file, for reading; raises ConfigError for what is missing, no HDF5, or lacks what Caffe puts there."""
    library = _library(path)
    if not path.is_file():
        raise ConfigError(f"{what} {path}: no such file")
    try:
        with library.File(path, "r") as file:
            yield file
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{what} {path}: not one of Caffe's HDF5 files: {error}") from error


def write_model(path: Path, names: Sequence[str], owned: Sequence[Mapping[int, Floats]]) -> None:
    """Write each layer's own blobs (by index; sharers' are with their owner) as data/<layer>/<index>."""
    with _library(path).File(path, "w") as file:
        data = file.create_group("data")
        for name, blobs in zip(names, owned):
            group = data.require_group(name)  # "a" is there already where "a/b" comes before it
            for index, blob in blobs.items():
                group.create_dataset(str(index), data=blob, dtype="<f4")


def read_model(path: Path, targets: Mapping[str, Sequence[Any]], shared: set[str], assign: Callable[..., None]) -> None:
    """`assign(target, values)` for the blobs of the net's layers that the file holds; for none if one does not fit.

    `shared` names the blobs ("layer/index") that may be missing because another layer's are stored.
    """
    found: list[tuple[Any, Array]] = []
    with _opened(path, "weights") as file:
        data = _member(file, "data", GROUP)
        for name in targets:
            if name in data:
                found += _layer(path, name, _member(data, name, GROUP), targets[name], shared)
        for target, stored in found:
            assign(target, np.asarray(stored[()], np.float32))


def stored_layers(path: Path) -> dict[str, list[Array]]:
    """Every layer of a .caffemodel.h5 with the blobs that are its own (a sharer's are with their owner)."""
    with _opened(path, "weights") as file:
        return dict(_stored("", _member(file, "data", GROUP)))


def _stored(name: str, group: Any) -> Iterator[tuple[str, list[Array]]]:
    held = {key: value for key, value in group.items() if hasattr(value, DATASET)}
    inner = [(key, value) for key, value in group.items() if key not in held]
    if name and (held or not inner):
        yield name, [np.asarray(held[key][()]) for key in sorted(held, key=int)]
    for key, value in inner:  # "a/b" lies inside layer "a"'s group
        yield from _stored(f"{name}/{key}" if name else key, value)


def _member(parent: Any, name: str, kind: str) -> Any:
    """A group or dataset of that name; raises KeyError if there is none."""
    found = parent.get(name)
    if not hasattr(found, kind):
        raise KeyError(f"it has no {name!r}")
    return found


def _layer(path: Path, name: str, group: Any, targets: Sequence[Any], shared: set[str]) -> list[tuple[Any, Any]]:
    stored = {key for key, value in group.items() if hasattr(value, DATASET)}  # "a/b" lies inside layer "a"'s group
    held = [str(index) for index in range(len(targets)) if str(index) in stored]
    missing = [str(i) for i in range(len(targets)) if str(i) not in held and f"{name}/{i}" not in shared]
    if missing or len(stored) > len(targets):
        counts = f"the file has {len(stored)}, the net {len(targets)}"
        raise ConfigError(f"weights {path}: Incompatible number of blobs for layer {name} ({counts})")
    for index in held:
        _demand_shape(f"weights {path}: layer {name}, blob {index}", group[index], tuple(targets[int(index)].shape))
    return [(targets[int(index)], group[index]) for index in held]


def _demand_shape(where: str, stored: Any, shape: tuple[int, ...]) -> None:
    if stored.dtype.kind not in "fiu":
        raise ConfigError(f"{where}: it holds {stored.dtype}, not numbers")
    if tuple(stored.shape) != shape:
        raise ConfigError(
            f"{where}: Cannot load blob from hdf5; shape mismatch: {stored.shape} in the file, not {shape}"
        )


def write_state(path: Path, iteration: int, model: str, current_step: int, history: Sequence[Floats]) -> None:
    """Write a .solverstate.h5 that names `model`."""
    library = _library(path)
    kind = library.h5t.C_S1.copy()  # a C string with its zero, which is how Caffe reads it
    kind.set_size(len(model.encode()) + 1)
    with library.File(path, "w") as file:
        for name, value in (("iter", iteration), ("current_step", current_step)):
            file.create_dataset(name, data=np.array([value], "<i4"))
        text = library.h5d.create(file.id, b"learned_net", kind, library.h5s.create(library.h5s.SCALAR))
        text.write(library.h5s.ALL, library.h5s.ALL, np.array(model.encode(), f"S{kind.get_size()}"), kind)
        group = file.create_group("history")
        for index, blob in enumerate(history):
            group.create_dataset(str(index), data=blob, dtype="<f4")


def read_state(path: Path, expected: Sequence[tuple[int, ...]]) -> tuple[int, str, int, list[Floats]]:
    """Iteration, the model's name ("" for none), current_step and history; raises ConfigError where they do not fit."""
    with _opened(path, "snapshot") as file:
        group = _member(file, "history", GROUP)
        if len(group) != len(expected):
            counts = f"the snapshot has {len(group)}, the solver keeps {len(expected)}"
            raise ConfigError(f"snapshot {path}: Incorrect length of history blobs ({counts})")
        for index, shape in enumerate(expected):
            blob = _member(group, str(index), DATASET)
            _demand_shape(f"snapshot {path}: history blob {index}", blob, shape)
        history = [np.asarray(group[str(index)][()], np.float32) for index in range(len(expected))]
        model = _text(file, "learned_net") if "learned_net" in file else ""
        return _number(file, "iter"), model, _number(file, "current_step"), history


def _number(file: Any, name: str) -> int:
    found = _member(file, name, DATASET)
    if found.dtype.kind not in "iu" or found.size != 1:
        raise KeyError(f"its {name!r} is not one number")
    return int(np.ravel(found[()])[0])


def _text(file: Any, name: str) -> str:
    """A string, of a fixed length (as Caffe writes it, with its zero) or not."""
    found = _member(file, name, DATASET)
    if found.dtype.kind not in "SO" or found.size != 1:
        raise KeyError(f"its {name!r} is not a string")
    value = np.ravel(found[()])[0]
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.split("\0")[0]
