"""Models and snapshots of a net and its solver, in both of Caffe's formats."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.engine import weights
from caffe_on_grid.engine.api import Array, Floats, WeightsReport
from caffe_on_grid.engine.torch import built, formats, hdf5
from caffe_on_grid.engine.torch.memory import assign, copied
from caffe_on_grid.engine.torch.net import Net
from caffe_on_grid.engine.torch.parameter import Parameter
from caffe_on_grid.engine.torch.solver import Solver
from caffe_on_grid.errors import ConfigError, TrainingFailed
from caffe_on_grid.proto.weights import blob_array

HDF5 = ".h5"


def load_weights(net: Net, path: Path, where: str = "") -> Optional[WeightsReport]:
    """Copy by layer name from a .caffemodel[.h5] (`where`: what to call it in errors); see engine.api.load_weights."""
    if path.suffix != HDF5:
        return weights.copy(_targets(net), weights.read(path), where or f"weights {path}", _assign)
    hdf5.read_model(path, _targets(net), _shared(net), _assign)
    return None


def save_model(net: Net, path: Path) -> None:
    """Write a .caffemodel, or .caffemodel.h5 by suffix; raises TrainingFailed without a folder to write to."""
    if not os.access(path.parent, os.W_OK):
        raise TrainingFailed(f"model {path}: its folder is missing or may not be written to")
    blobs = [
        [_array(p.data).reshape(_shape(net, layer, at)) for at, p in enumerate(layer.params)] for layer in net.layers
    ]
    if path.suffix != HDF5:
        formats.write_model(path, built.message(net), blobs)
        return
    shared, names = _shared(net), [layer.name for layer in net.layers]
    owned = [{i: b for i, b in enumerate(held) if f"{n}/{i}" not in shared} for n, held in zip(names, blobs)]
    hdf5.write_model(path, names, owned)


def save_state(solver: Solver, path: Path, model: str) -> None:
    """Write a .solverstate[.h5] that names `model`."""
    write = hdf5.write_state if path.suffix == HDF5 else formats.write_state
    write(path, solver.iteration, model, solver.current_step, [_array(blob) for blob in solver.history])


def restore(net: Net, solver: Solver, state: Path) -> None:
    """Load a .solverstate[.h5] and the model that it names; raises ConfigError where one of them does not fit."""
    if not state.is_file():
        raise ConfigError(f"snapshot {state}: no such file")
    iteration, model, current_step, history = _read_state(solver, state)
    if model:
        if not Path(model).is_file():
            raise ConfigError(f"snapshot {state}: its model {model}: no such file")
        load_weights(net, Path(model), f"snapshot {state}: {model}")
    for blob, values in zip(solver.history, history):
        assign(blob, values.reshape(tuple(blob.shape)))
    solver.iteration, solver.current_step = iteration, current_step


def _read_state(solver: Solver, state: Path) -> tuple[int, str, int, Sequence[Floats]]:
    shapes = [tuple(blob.shape) for blob in solver.history]
    if state.suffix == HDF5:
        return hdf5.read_state(state, shapes)
    stored = weights.check_state(state, shapes, 1)
    history = [blob_array(blob, f"snapshot {state}: history blob {at}")[1] for at, blob in enumerate(stored.history)]
    return stored.iter, stored.learned_net, stored.current_step, history


class _Target:
    """A parameter as its layer sees it."""

    def __init__(self, parameter: Parameter, shape: tuple[int, ...]) -> None:
        self.parameter, self.shape = parameter, shape


def _targets(net: Net) -> dict[str, list[_Target]]:
    return {
        layer.name: [_Target(p, _shape(net, layer, at)) for at, p in enumerate(layer.params)] for layer in net.layers
    }


def _shape(net: Net, layer: Any, at: int) -> tuple[int, ...]:
    """A sharer's blob may have another shape than its owner's (share_mode PERMISSIVE)."""
    return tuple(layer.weights[at].shape)


def _assign(target: _Target, values: Array) -> None:
    assign(target.parameter.data, values.reshape(target.parameter.shape))


def _shared(net: Net) -> set[str]:
    """`layer/index` of blobs that another layer owns."""
    owned = {id(p): p.name for p in net.learnable}
    return {
        f"{layer.name}/{at}"
        for layer in net.layers
        for at, p in enumerate(layer.params)
        if owned[id(p)] != f"{layer.name}/{at}"
    }


def _array(tensor: Any) -> Floats:
    array: Floats = copied(tensor) if tensor.is_cuda else tensor.numpy()
    return array
