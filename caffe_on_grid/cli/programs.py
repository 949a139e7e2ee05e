"""The verbs that are programs of other rooms: convert, inspect, time. Their words, --help too, are the program's."""

from __future__ import annotations

import os
from typing import Optional

import click

from caffe_on_grid.cli import configuration


class Program(click.Command):
    """A verb that reads none of its words, but for a leading --runtime PATH."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words as they are."""
        if args[:1] == ["--runtime"] and len(args) < 2:
            raise click.UsageError("--runtime needs a value", ctx)
        own = 2 if args[:1] == ["--runtime"] else 0
        ctx.params = {"runtime": args[1] if own else None, "args": tuple(args[own:])}
        return []


def _program(name: str, module: str, summary: str) -> click.Command:
    def callback(runtime: Optional[str], args: tuple[str, ...]) -> None:
        from caffe_on_grid.submit import programs

        chosen = runtime or configuration.current().values["runtime.path"]
        programs.become(module, args, chosen, os.environ)

    return Program(name, callback=callback, help=summary)


convert = _program("convert", "caffe_on_grid.data.convert", "Write MNIST, CIFAR or image files as an LMDB.")
inspect = _program("inspect", "caffe_on_grid.worker.inspect", "Show what a prototxt, a model or an LMDB holds.")
time = _program("time", "caffe_on_grid.worker.timing", "Time a net's layers.")
