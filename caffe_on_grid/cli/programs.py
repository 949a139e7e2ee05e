"""The verbs that are programs of other rooms: convert, inspect, time, export. Their words, --help too, are theirs."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn, Optional

import click

from caffe_on_grid.cli import configuration
from caffe_on_grid.spec import codec, defaults

OWN = {"--runtime": "runtime", "--engine": "engine"}
"""Words, with a value each, that the verb itself reads where they come first."""


class Program(click.Command):
    """A verb that reads none of its words, but for leading ones of `OWN`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the other words as they are."""
        ctx.params = dict.fromkeys(OWN.values())
        while args and args[0] in OWN:
            if len(args) < 2:
                raise click.UsageError(f"{args[0]} needs a value", ctx)
            ctx.params[OWN[args[0]]] = args[1]
            args = args[2:]
        ctx.params["args"] = tuple(args)
        return []


SVG = "--svg"
"""`inspect`'s word for a picture, which is drawn here: the runtimes have no library for it."""


def _program(name: str, module: str, summary: str, builds: bool, default: Optional[str] = None) -> click.Command:
    """`builds`: the program builds nets, and is told by which engine; `default`: whose runtime it wants otherwise."""

    def callback(runtime: Optional[str], engine: Optional[str], args: tuple[str, ...]) -> None:
        from caffe_on_grid.submit import programs

        values = configuration.current().values
        chosen = _engine(engine or default or values["engine.name"])
        words = ("--engine", chosen, *args) if builds and chosen != "auto" else args
        if name == "inspect" and SVG in words:
            _draw(module, words, runtime or values["runtime.path"], chosen)
        programs.become(module, words, runtime or values["runtime.path"], os.environ, chosen)

    return Program(name, callback=callback, help=summary)


def _draw(module: str, words: tuple[str, ...], runtime: Optional[str], engine: str) -> NoReturn:
    """Write the picture of the net (of a solver: of its TRAIN net) and end with the program's exit code."""
    from caffe_on_grid.submit import programs

    at = words.index(SVG)
    out = words[at + 1] if len(words) > at + 1 else ""
    if not out.endswith(".svg"):
        raise click.UsageError(f"{SVG} {out}: expected the name of a file to write that ends in .svg")
    asked = [word for word in (*words[:at], *words[at + 2 :]) if word != "--json"]
    code, said = programs.answer(module, (*asked, "--json"), runtime, os.environ, engine)
    if code == 0:
        click.echo(_drawn(json.loads(said), out))
    sys.exit(code)


def _drawn(found: Any, out: str) -> str:
    from caffe_on_grid.metrics import picture
    from caffe_on_grid.storage.registry import connect

    net = found["nets"][0] if found["kind"] == "solver" else found
    if net["kind"] != "net":
        raise click.UsageError(f"{SVG} draws nets, and {found['path']} is a {found['kind']}")
    connect(out).write(picture.draw(net).encode(), out)
    return out


def _engine(name: str) -> str:
    known = defaults.CHOICES["engine.name"]
    if name not in known:
        raise click.UsageError(f"--engine {name}: expected one of {', '.join(known)}{codec.suggestion(name, known)}")
    return name


convert = _program("convert", "caffe_on_grid.data.convert", "Write MNIST, CIFAR or image files as an LMDB.", False)
inspect = _program("inspect", "caffe_on_grid.worker.inspect", "Show what a prototxt, a model or an LMDB holds.", True)
time = _program("time", "caffe_on_grid.worker.timing", "Time a net's layers.", True)
export = _program(
    "export",
    "caffe_on_grid.worker.export",
    "Write a net and its model as ONNX or as a PyTorch state_dict.",
    False,
    "torch",
)
