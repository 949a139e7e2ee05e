"""What nets and solvers are, built by the real engine, as JSON values and as lines."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.api import Engine, LayerInfo
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import graph, schema, text, upgrade
from caffe_on_grid.worker import offline

Found = dict[str, Any]


def net(path: Path, args: argparse.Namespace) -> Found:
    """The net in `path`, in the phase and stages asked for."""
    return built(offline.read_net(path, args.phase, args.stage), args.phase, path, args)


def built(message: Any, phase: str, path: Path, args: argparse.Namespace) -> Found:
    """A filtered net's layers, shapes and sizes; to be run in a child process, because Caffe aborts on a bad net."""
    made = offline.stand_in(message, phase, path.parent, args.shape)
    with tempfile.TemporaryDirectory() as scratch:
        engine = registry.create(args.engine, offline.plan(made.net, phase, Path(scratch)))
    infos = engine.layers(None if phase == "TRAIN" else 0)
    return {
        "kind": "net",
        "path": str(path),
        "name": message.name,
        "phase": phase,
        "inputs": list(made.notes),
        "layers": _layers(made.net, infos),
        **_sizes(engine, infos, phase),
    }


def _layers(message: Any, infos: tuple[LayerInfo, ...]) -> list[Found]:
    """The layers that the prototxt has; the splits that Caffe adds are left out."""
    bottoms = {layer.name: list(layer.bottom) for layer in message.layer}
    return [
        {
            "name": info.name,
            "type": info.type,
            "bottoms": bottoms[info.name],
            "tops": list(info.tops),
            "top_shapes": [list(shape) for shape in info.top_shapes],
            "param_shapes": [list(shape) for shape in info.param_shapes],
            "parameters": sum(map(_count, info.param_shapes)),
            "loss_weights": list(info.loss_weights),
        }
        for info in infos
        if info.name in bottoms
    ]


def _sizes(engine: Engine, infos: tuple[LayerInfo, ...], phase: str) -> Found:
    """Counts, and bytes as they are held: blobs once by name (a split or an in-place layer adds none to its bottom)."""
    tops = {top: _count(s) for i in infos if i.type != "Split" for top, s in zip(i.tops, i.top_shapes)}
    parameters = sum(int(blob.size) for blob in engine.all_params())
    sides = 2 if phase == "TRAIN" else 1
    return {
        "parameters": parameters,
        "learnable": sum(int(blob.size) for blob in engine.params),
        "blob_bytes": 4 * sides * sum(tops.values()),
        "parameter_bytes": 4 * sides * parameters,
    }


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def net_lines(found: Found) -> Iterator[str]:
    """A table of the layers, then the totals."""
    yield f"net {found['name']!r}, phase {found['phase']}"
    yield from (f"  {note}" for note in found["inputs"])
    yield f"{'layer':<30} {'type':<18} {'top shape':<22} {'parameters':>12}  from → to"
    for layer in found["layers"]:
        shapes = ", ".join(" x ".join(map(str, shape)) or "scalar" for shape in layer["top_shapes"])
        weights = ", ".join(" x ".join(map(str, shape)) or "scalar" for shape in layer["param_shapes"])
        loss = "".join(f", loss weight {weight:g}" for weight in layer["loss_weights"] if weight)
        flow = f"{', '.join(layer['bottoms'])} → {', '.join(layer['tops'])}{loss}"
        yield (
            f"{layer['name']:<30} {layer['type']:<18} {shapes:<22} {layer['parameters']:>12,}  {flow}"
            f"{f'  [{weights}]' if weights else ''}"
        )
    gradients = " and gradients" if found["phase"] == "TRAIN" else ""
    yield (
        f"{found['parameters']:,} parameters ({found['learnable']:,} learnable); values{gradients}: "
        f"{_mib(found['parameter_bytes'])} of parameters, {_mib(found['blob_bytes'])} of blobs"
    )


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def solver(path: Path, args: argparse.Namespace) -> Found:
    """A solver's fields, what they come to, and its nets; to be run in a child process."""
    message = upgrade.upgrade_solver(text.parse(schema.SolverParameter, offline.read_text(path), str(path)))
    nets = graph.solver_nets(message, lambda name: offline.read_text(_beside(name, path)))
    phases = [("TRAIN", nets.train)] + [("TEST", test) for test in nets.tests]
    shown = [built(found, phase, path, args) for phase, found in phases]
    batch = sum(layer.batch_size for layer in graph.data_layers(nets.train)[:1]) * message.iter_size
    return {
        "kind": "solver",
        "path": str(path),
        "fields": dict(_fields(message)),
        "defaults": dict(_defaults(message)),
        "type": message.type,
        "batch": batch,
        "records_seen": batch * message.max_iter,
        "epochs": _epochs(batch * message.max_iter, nets.train, path.parent),
        "nets": shown,
    }


def _fields(message: Any) -> Iterator[tuple[str, Any]]:
    """The scalar fields that are set, as (name, value)."""
    for field, value in message.ListFields():
        if field.message_type is None:
            single = isinstance(value, (bool, int, float, str))
            yield field.name, _plain(field, value) if single else [_plain(field, each) for each in value]


def _defaults(message: Any) -> Iterator[tuple[str, Any]]:
    """The scalar fields that are not set and have a default of Caffe's, as (name, default)."""
    for field in message.DESCRIPTOR.fields:
        if field.has_default_value and not message.HasField(field.name):
            yield field.name, _plain(field, field.default_value)


def _plain(field: Any, value: Any) -> Any:
    """Enums by name; float32 in as many digits as it holds."""
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _beside(name: str, path: Path) -> Path:
    beside = path.parent / name
    return beside if beside.exists() else Path(name)


def _epochs(seen: int, net: Any, folder: Path) -> Any:
    """Passes over the TRAIN source on one device, where the source is here."""
    layers = graph.data_layers(net)
    total = offline.record_count(layers[0], folder) if layers else None
    return seen / total if total else None


def solver_lines(found: Found) -> Iterator[str]:
    """The fields, the totals, then each net."""
    yield from (f"{name}: {value}" for name, value in found["fields"].items())
    yield f"left at Caffe's defaults: {', '.join(f'{name} {value}' for name, value in found['defaults'].items())}"
    epochs = f", {found['epochs']:.2f} epochs" if found["epochs"] else ""
    yield f"{found['batch']:,} records a step on each device, {found['records_seen']:,} in all on one device{epochs}"
    for net in found["nets"]:
        yield ""
        yield from net_lines(net)


def kind_of(path: Path) -> str:
    """ "solver" or "net", by the fields at the top of the prototxt; raises ConfigError where it is neither."""
    names = {field.path[0] for field in text.fields(offline.read_text(path), str(path))}
    if names & {"layer", "layers", "input"}:
        return "net"
    known = {field.name for field in schema.SolverParameter.DESCRIPTOR.fields}
    if names & known:
        return "solver"
    raise ConfigError(f"{path}: neither a net (no layer) nor a solver (none of its fields)")
