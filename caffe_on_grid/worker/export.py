"""A net and its model in other frameworks' form: `python -m caffe_on_grid.worker.export -model M -net N OUT`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.export import deploy, parameters, state_dict
from caffe_on_grid.errors import ConfigError, EnvironmentFault, UsageError
from caffe_on_grid.proto import shapes
from caffe_on_grid.proto.graph import DataLayer, data_layers
from caffe_on_grid.proto.shapes_base import NetShapes
from caffe_on_grid.spec import program
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.worker import offline
from caffe_on_grid.worker.timing import shape

FORMS = {".onnx": "onnx", ".pt": "torch", ".pth": "torch"}
"""Suffix of OUT → the library that writes it."""


def parser() -> argparse.ArgumentParser:
    """The program's words: Caffe's own, with one or two dashes."""
    words = program.Parser(prog="caffe-on-grid export", description="Write a net and its model otherwise.")
    words.add_argument(
        "-model", "--model", type=Path, required=True, help=".caffemodel (or .caffemodel.h5) with the net's parameters"
    )
    words.add_argument("-net", "--net", type=Path, required=True, help="net prototxt: for deployment, or of training")
    words.add_argument("out", metavar="OUT", help="file.onnx (ONNX), or file.pt (state_dict that torch.load reads)")
    words.add_argument("-outputs", "--outputs", help="blobs to give, with commas; else all that no layer takes")
    words.add_argument("-shape", "--shape", help="C,H,W of a record where nothing else tells")
    words.add_argument("-batch", "--batch", type=int, help="samples in a pass, where the net cannot leave it open")
    offline.state_words(words)
    words.add_argument(
        "--ignore-unknown-fields", action="store_true", help="leave out fields that Caffe lacks, list them"
    )
    words.add_argument("--overwrite", action="store_true", help="replace an existing file")
    return words


def export(args: argparse.Namespace) -> tuple[bytes, list[str]]:
    """The content of OUT, and remarks; raises ConfigError where a layer has no such form."""
    net, known, remarks = deployed(args)
    stored = parameters.read(args.model, net, known)
    if FORMS[Path(args.out).suffix] == "onnx":
        from caffe_on_grid.engine.export import onnx_net

        return onnx_net.content(net, known, stored), remarks
    return state_dict.content(net, stored), remarks


def deployed(args: argparse.Namespace) -> tuple[Any, NetShapes, list[str]]:
    """The net of the TEST phase without labels and losses, its shapes, and remarks."""
    left_out: Optional[list[str]] = [] if args.ignore_unknown_fields else None
    message = offline.read_net(args.net, "TEST", args.stage, args.level, left_out)
    made = offline.stand_in(message, "TEST", args.net.parent, shape(args.shape))
    wanted = [name for name in (args.outputs or "").split(",") if name]
    net = deploy.deploy(made.net, wanted)
    if args.batch:
        _resize(net, args.batch)
    remarks = [remark for layer in data_layers(message) for remark in _transforms(layer)]
    return net, shapes.infer(net), [*(left_out or []), *remarks]


def _resize(net: Any, batch: int) -> None:
    for layer in net.layer:
        for each in layer.input_param.shape if layer.type == "Input" else ():
            each.dim[:1] = [batch]


def _transforms(layer: DataLayer) -> list[str]:
    """What the data layer does to records is not in the net."""
    done = [name for name in ("scale", "mean_file", "mean_value", "crop_size") if _set(layer.transform, name)]
    what = f"input {layer.data_top!r} takes records to which {', '.join(done)} of transform_param have been applied"
    return [what] if done else []


def _set(message: Any, name: str) -> bool:
    return any(field.name == name for field, _ in message.ListFields())


def _check(args: argparse.Namespace) -> None:
    """Refuse what can be refused before anything is read."""
    suffix = Path(args.out).suffix
    if suffix not in FORMS:
        raise UsageError(f"{args.out}: its suffix tells the form: expected one of {', '.join(FORMS)}")
    if args.batch is not None and args.batch < 1:
        raise UsageError(f"-batch {args.batch}: expected at least 1")
    if connect(args.out).exists(args.out) and not args.overwrite:
        raise ConfigError(f"{args.out}: exists; remove it, name another, or say --overwrite")
    try:
        registry.library(FORMS[suffix])
    except ImportError as error:
        raise EnvironmentFault(
            f"{args.out}: this Python ({sys.executable}) lacks {FORMS[suffix]} ({error}): install it there, or name a "
            "runtime that has it with --runtime"
        ) from None


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Write OUT, whole or not at all; the exit code is the error's."""
    args = parser().parse_args(argv)
    return program.end(lambda: _write(args))


def _write(args: argparse.Namespace) -> None:
    _check(args)
    content, remarks = export(args)
    connect(args.out).write(content, args.out)
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)
    print(args.out)


if __name__ == "__main__":
    sys.exit(main())
