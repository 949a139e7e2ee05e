"""A net outside a job: read, filtered, and built with stand-ins for its data, for `inspect` and `time`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from caffe_on_grid.data import lmdb_source, transform
from caffe_on_grid.data.api import Array
from caffe_on_grid.engine.api import EnginePlan
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import graph, schema, text, upgrade

PHASES: dict[str, int] = {name: number for number, name in schema.PHASES.items()}


@dataclass(frozen=True)
class StandIn:
    """A net whose data layers are inputs: the batches for them, and a line on each about where it comes from."""

    net: Any
    blobs: Mapping[str, Array]
    notes: tuple[str, ...]


def read_text(path: Path) -> str:
    """A text file's content; raises ConfigError naming it."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file, and none of the kinds that are known by their names") from None


def prototxt(path: Path, cls: Any, remarks: Optional[list[str]] = None) -> str:
    """The text of message `cls` in `path`; with `remarks`, fields that `cls` lacks are left out and listed there."""
    content = read_text(path)
    if remarks is None:
        return content
    kept, lines = text.without_unknown(cls, content, str(path))
    remarks += [line for line in lines if line not in remarks]
    return kept


def state_words(words: argparse.ArgumentParser) -> None:
    """Caffe's own for a net's state, but for its phase: `-stage a,b` and `-level N`."""
    words.add_argument(
        "-stage", "--stage", action="extend", type=lambda word: word.split(","), default=[],
        help="stages of the net's state, by commas; repeatable",
    )  # fmt: skip
    words.add_argument("-level", "--level", type=int, help="level of the net's state")


def read_net(
    path: Path,
    phase: str,
    stages: Sequence[str] = (),
    level: Optional[int] = None,
    remarks: Optional[list[str]] = None,
) -> Any:
    """The net in `path`, upgraded and filtered for its state with these; `remarks` as for `prototxt`."""
    content = prototxt(path, schema.NetParameter, remarks)
    net = upgrade.upgrade_net(text.parse(schema.NetParameter, content, str(path)), str(path))
    state = schema.NetState(phase=PHASES[phase])
    state.MergeFrom(net.state)
    state.phase = PHASES[phase]
    state.stage.extend(stages)
    if level is not None:
        state.level = level
    return graph.filter_net(net, state)


def stand_in(net: Any, phase: str, folder: Path, shape: Optional[tuple[int, ...]] = None) -> StandIn:
    """`net` with inputs in place of data layers: one batch of each LMDB that is there, else random values.

    Sources and mean files are looked for beside the prototxt (`folder`), then in the working directory. `shape` is
    [C, H, W] of a record where neither a source nor crop_size tells.
    """
    fed = [_batch(layer, phase, folder, shape) for layer in graph.data_layers(net)]
    blobs = {name: array for batch, _ in fed for name, array in batch.items()}
    shapes = {name: tuple(array.shape) for name, array in blobs.items()}
    return StandIn(graph.replace_data(net, shapes), blobs, tuple(note for _, note in fed))


def _batch(
    layer: graph.DataLayer, phase: str, folder: Path, shape: Optional[tuple[int, ...]]
) -> tuple[dict[str, Array], str]:
    source = _find(layer.source, folder)
    if source is None:
        return _random(layer, shape)
    plan = transform.plan(layer.transform, lambda name: _read_mean(name, folder), phase)
    records = lmdb_source.open(str(source))
    try:
        read = [records.read(at % len(records)) for at in range(layer.batch_size)]
    finally:
        records.close()
    data = np.empty((len(read), *transform.top_shape(read[0].pixels.shape, plan)), np.float32)
    for at, record in enumerate(read):
        transform.apply(record.pixels, plan, phase, transform.draws(0, at), data[at])
    return _tops(layer, data, [record.label for record in read]), f"{_input(layer, data)}, records of {source}"


def _random(layer: graph.DataLayer, shape: Optional[tuple[int, ...]]) -> tuple[dict[str, Array], str]:
    size = (layer.batch_size, *(shape or _guess(layer)))
    data = np.random.RandomState(0).rand(*size).astype(np.float32)
    return _tops(layer, data, [0] * len(data)), f"{_input(layer, data)}, random values ({layer.source} is not here)"


def _guess(layer: graph.DataLayer) -> tuple[int, int, int]:
    """[C, H, W] from crop_size: three channels unless the transform says one."""
    crop = layer.transform.crop_size
    if not crop:
        raise ConfigError(
            f"layer {layer.name!r}: its source {layer.source} is not here and it has no crop_size: give -shape C,H,W"
        )
    return (1 if layer.transform.force_gray else 3, crop, crop)


def _tops(layer: graph.DataLayer, data: Array, labels: Sequence[int]) -> dict[str, Array]:
    tops = {layer.data_top: data}
    if layer.label_top:
        tops[layer.label_top] = np.array(labels, np.float32)
    return tops


def _input(layer: graph.DataLayer, data: Array) -> str:
    return f"{layer.data_top}: input of {' x '.join(map(str, data.shape))}"


def _find(name: str, folder: Path) -> Optional[Path]:
    return next((path for path in (folder / name, Path(name)) if path.exists()), None)


def _read_mean(name: str, folder: Path) -> bytes:
    found = _find(name, folder)
    if found is None:
        raise ConfigError(f"mean_file {name}: no such file beside the prototxt or in the working directory")
    return found.read_bytes()


def record_count(layer: graph.DataLayer, folder: Path) -> Optional[int]:
    """Records in a data layer's source, where it is here."""
    source = _find(layer.source, folder)
    if source is None:
        return None
    records = lmdb_source.open(str(source))
    try:
        return len(records)
    finally:
        records.close()


def plan(net: Any, phase: str, scratch: Path, gpu: Optional[int] = None, strict: bool = False) -> EnginePlan:
    """An engine's plan for one net alone, with a solver that would change nothing."""
    solver = schema.SolverParameter(type="SGD", base_lr=0, lr_policy="fixed", max_iter=1)
    train, tests = (net, ()) if phase == "TRAIN" else (None, (net,))
    return EnginePlan(solver, train, tests, gpu=gpu, seed=1, scratch=scratch, strict=strict)
