"""What nets and solvers are, by the shape rules, as JSON values and as lines."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.api import LayerInfo
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import graph, lint, lint_shapes, references, schema, shapes, text, upgrade
from caffe_on_grid.proto.shapes_base import LayerShapes, NetShapes, count
from caffe_on_grid.worker import offline

Found = dict[str, Any]

_NO_SOLVER = schema.SolverParameter()


def net(path: Path, args: argparse.Namespace) -> Found:
    """The net in `path`, in the phase and stages asked for."""
    remarks = _remarks(args)
    message = offline.read_net(path, args.phase, args.stage, args.level, remarks)
    return {**built(message, args.phase, path, args), "left_out": remarks or []}


def _remarks(args: argparse.Namespace) -> Optional[list[str]]:
    """Where fields that Caffe lacks are listed; None: they are refused."""
    return [] if args.ignore_unknown_fields else None


def built(message: Any, phase: str, path: Path, args: argparse.Namespace, solver: Any = _NO_SOLVER) -> Found:
    """A filtered net's layers, shapes, work and sizes, by the shape rules.

    An engine builds the net too where one is asked for, and must agree; where the net has Python layers, it tells their
    shapes. To be run in a child process, because Caffe aborts on a bad net.
    """
    made = offline.stand_in(message, phase, path.parent, args.shape)
    inputs = {top: tuple(array.shape) for top, array in made.blobs.items()}
    python = graph.has_python_layer(message)
    infos = _by_engine(made.net, phase, args.engine) if python or args.engine != "auto" else ()
    inputs.update((top, s) for info in infos if info.name in python for top, s in zip(info.tops, info.top_shapes))
    known = shapes.infer(message, inputs)
    _compare(known, {info.name: info for info in infos}, args.engine)
    return {
        "kind": "net",
        "path": str(path),
        "name": message.name,
        "phase": phase,
        "inputs": list(made.notes),
        "layers": [_layer(layer, known.train) for layer in known.layers],
        "parameters": known.parameters,
        "learnable": known.learnable,
        "flops": known.flops,
        "blob_bytes": known.total("activation_bytes") + known.total("gradient_bytes"),
        "parameter_bytes": known.total("parameter_bytes") + known.parameter_gradient_bytes,
        "buffer_bytes": known.total("buffer_bytes"),
        "warnings": lint_shapes.warnings(solver, message, known),
    }


def _by_engine(message: Any, phase: str, name: str) -> tuple[LayerInfo, ...]:
    """The layers as an engine builds them."""
    with tempfile.TemporaryDirectory() as scratch:
        engine = registry.create(name, offline.plan(message, phase, Path(scratch)))
    return engine.layers(None if phase == "TRAIN" else 0)


def _compare(known: NetShapes, infos: Mapping[str, LayerInfo], engine: str) -> None:
    """Raises ConfigError where the engine's shapes are not those of the rules."""
    for layer in known.layers if infos else ():
        info = infos[layer.name]
        ours, theirs = (layer.top_shapes, layer.param_shapes), (info.top_shapes, info.param_shapes)
        if ours != theirs:
            raise ConfigError(
                f"layer {layer.name!r} ({layer.type}): engine {engine} makes {theirs}, the rules say {ours}"
            )


def _layer(layer: LayerShapes, trains: bool) -> Found:
    sides = 2 if trains else 1
    return {
        "name": layer.name,
        "type": layer.type,
        "bottoms": list(layer.bottoms),
        "tops": list(layer.tops),
        "top_shapes": [list(shape) for shape in layer.top_shapes],
        "param_shapes": [list(shape) for shape in layer.param_shapes],
        "parameters": sum(map(count, layer.param_shapes)),
        "loss_weights": list(layer.loss_weights),
        "flops": layer.flops,
        "bytes": layer.activation_bytes + layer.gradient_bytes + layer.buffer_bytes + sides * layer.parameter_bytes,
    }


def net_lines(found: Found) -> Iterator[str]:
    """A table of the layers, then the totals."""
    yield from found.get("left_out", ())
    yield f"net {found['name']!r}, phase {found['phase']}"
    yield from (f"  {note}" for note in found["inputs"])
    head = f"{'layer':<30} {'type':<18} {'top shape':<22} {'parameters':>12} {'MFLOP':>10} {'MiB':>8}"
    yield f"{head}  from → to"
    for layer in found["layers"]:
        sizes = ", ".join(" x ".join(map(str, shape)) or "scalar" for shape in layer["top_shapes"])
        weights = ", ".join(" x ".join(map(str, shape)) or "scalar" for shape in layer["param_shapes"])
        loss = "".join(f", loss weight {weight:g}" for weight in layer["loss_weights"] if weight)
        flow = f"{', '.join(layer['bottoms'])} → {', '.join(layer['tops'])}{loss}"
        yield (
            f"{layer['name']:<30} {layer['type']:<18} {sizes:<22} {layer['parameters']:>12,}"
            f" {layer['flops'] / 1e6:>10,.1f} {layer['bytes'] / 2**20:>8,.1f}  {flow}"
            f"{f'  [{weights}]' if weights else ''}"
        )
    gradients = " and gradients" if found["phase"] == "TRAIN" else ""
    yield (
        f"{found['parameters']:,} parameters ({found['learnable']:,} learnable); values{gradients}: "
        f"{_mib(found['parameter_bytes'])} of parameters, {_mib(found['blob_bytes'])} of blobs, "
        f"{_mib(found['buffer_bytes'])} of buffers"
    )
    yield f"{found['flops'] / 1e9:,.3f} GFLOP forward (2 for each multiply-add of convolutions and inner products)"
    yield from (f"warning: {line}" for line in found["warnings"])


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def solver(path: Path, args: argparse.Namespace) -> Found:
    """A solver's fields, what they come to, and its nets; to be run in a child process."""
    remarks = _remarks(args)
    content = offline.prototxt(path, schema.SolverParameter, remarks)
    message = upgrade.upgrade_solver(text.parse(schema.SolverParameter, content, str(path)))
    nets = graph.solver_nets(message, lambda name: offline.prototxt(_beside(name, path), schema.NetParameter, remarks))
    phases = [("TRAIN", nets.train)] + [("TEST", test) for test in nets.tests]
    shown = [built(found, phase, path, args, message) for phase, found in phases]
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
        "left_out": remarks or [],
        "warnings": lint.warnings(message, nets),
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
    yield from found["left_out"]
    yield from (f"{name}: {value}" for name, value in found["fields"].items())
    yield f"left at Caffe's defaults: {', '.join(f'{name} {value}' for name, value in found['defaults'].items())}"
    epochs = f", {found['epochs']:.2f} epochs" if found["epochs"] else ""
    yield f"{found['batch']:,} records a step on each device, {found['records_seen']:,} in all on one device{epochs}"
    yield from (f"warning: {line}" for line in found["warnings"])
    for net in found["nets"]:
        yield ""
        yield from net_lines(net)


def kind_of(path: Path) -> str:
    """ "solver" or "net"; raises ConfigError where the prototxt is neither."""
    return references.kind_of(offline.read_text(path), str(path))
