"""Layer times, as `caffe time` gives them: `python -m caffe_on_grid.worker.timing -model NET`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.engine import registry
from caffe_on_grid.errors import UsageError
from caffe_on_grid.spec import program
from caffe_on_grid.worker import child, offline

ENGINES = ("auto", *registry.NAMES)


def parser() -> argparse.ArgumentParser:
    """The program's words: Caffe's own, with one or two dashes."""
    words = program.Parser(prog="caffe-on-grid time", description=__doc__.split(":")[0] if __doc__ else None)
    words.add_argument("-model", "--model", type=Path, required=True, help="net prototxt")
    words.add_argument("-phase", "--phase", choices=("TRAIN", "TEST"), default="TRAIN")
    offline.state_words(words)
    words.add_argument("-iterations", "--iterations", type=int, default=50, help="passes timed, after one that is not")
    words.add_argument("-gpu", "--gpu", type=int, help="device index; left out: CPU")
    words.add_argument("-engine", "--engine", choices=ENGINES, default="auto", help="what builds and times the net")
    words.add_argument("-shape", "--shape", help="C,H,W of a record where nothing else tells")
    words.add_argument(
        "--ignore-unknown-fields", action="store_true", help="leave out fields that Caffe lacks, list them"
    )
    words.add_argument("--strict-caffe", action="store_true", help="let engine torch have Caffe's faulty gradients too")
    words.add_argument("--json", action="store_true", help="one JSON object")
    return words


def shape(word: Optional[str]) -> Optional[tuple[int, ...]]:
    """`3,224,224` → (3, 224, 224)."""
    if word is None:
        return None
    parts = word.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"-shape {word}: expected three positive numbers C,H,W such as 3,224,224")
    return tuple(int(part) for part in parts)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Build the net and time it; to be run in a child process."""
    record = shape(args.shape)
    remarks: Optional[list[str]] = [] if args.ignore_unknown_fields else None
    net = offline.read_net(args.model, args.phase, args.stage, args.level, remarks)
    made = offline.stand_in(net, args.phase, args.model.parent, record)
    with tempfile.TemporaryDirectory() as scratch:
        plan = offline.plan(made.net, args.phase, Path(scratch), args.gpu, args.strict_caffe)
        engine = registry.create(args.engine, plan)
        times = engine.time_layers(args.iterations, made.blobs)
    layers: list[dict[str, Any]] = [
        {"name": t.name, "type": t.type, "forward_ms": 1e3 * t.forward_s, "backward_ms": 1e3 * t.backward_s}
        for t in times
    ]
    forward, backward = (sum(layer[key] for layer in layers) for key in ("forward_ms", "backward_ms"))
    return {
        "model": str(args.model),
        "phase": args.phase,
        "engine": engine.name,
        "device": "cpu" if args.gpu is None else f"gpu {args.gpu}",
        "iterations": args.iterations,
        "inputs": list(made.notes),
        "left_out": remarks or [],
        "layers": layers,
        "forward_ms": forward,
        "backward_ms": backward,
        "forward_backward_ms": forward + backward,
        "total_ms": (forward + backward) * args.iterations,
    }


def lines(times: dict[str, Any]) -> Iterator[str]:
    """The lines that `caffe time` logs, without their prefix."""
    yield "Average time per layer: "
    for layer in times["layers"]:
        yield f"{layer['name']:>10}\tforward: {layer['forward_ms']:.6g} ms."
        yield f"{layer['name']:>10}\tbackward: {layer['backward_ms']:.6g} ms."
    yield f"Average Forward pass: {times['forward_ms']:.6g} ms."
    yield f"Average Backward pass: {times['backward_ms']:.6g} ms."
    yield f"Average Forward-Backward: {times['forward_backward_ms']:.6g} ms."
    yield f"Total Time: {times['total_ms']:.6g} ms."


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Print the times; the exit code is the error's."""
    args = parser().parse_args(argv)
    return program.end(lambda: _show(args))


def _show(args: argparse.Namespace) -> None:
    if args.iterations < 1:
        raise UsageError(f"-iterations {args.iterations}: expected at least 1")
    times = child.run(lambda: measure(args), str(args.model))
    for note in (*times["left_out"], *times["inputs"]):
        print(note, file=sys.stderr)
    print(json.dumps(times) if args.json else "\n".join(lines(times)))


if __name__ == "__main__":
    sys.exit(main())
