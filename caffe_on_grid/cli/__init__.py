"""The command line: options, verbs, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn, Optional

import click

from caffe_on_grid import __version__
from caffe_on_grid.cli import words
from caffe_on_grid.errors import GridError, Interrupted, Signalled, Terminated, of_the_machine

VERBS: dict[str, tuple[str, str]] = {
    "train": ("train:train", "Train a net."),
    "test": ("train:test", "Evaluate a model on the solver's TEST net."),
    "submit": ("train:submit", "Train and test with CaffeOnSpark's own words."),
    "oozie": ("oozie:oozie", "Write an Oozie workflow that runs the job."),
    "convert": ("programs:convert", "Write MNIST, CIFAR or image files as an LMDB."),
    "inspect": ("programs:inspect", "Show what a prototxt, a model or an LMDB holds."),
    "upgrade": ("models:upgrade", "Rewrite an old net, solver or .caffemodel in today's form."),
    "export": ("programs:export", "Write a net and its model as ONNX or as a PyTorch state_dict."),
    "time": ("programs:time", "Time a net's layers, as `caffe time` does."),
    "pack": ("operate:pack", "Build the ranks' runtime, with Caffe or with PyTorch."),
    "config": ("operate:config", "Show the configuration and where it comes from."),
}
"""Verb → where its command is, and what --help says; a verb's module is loaded when the verb is used."""


class Verbs(click.Group):
    """The verbs, loaded late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the table's order."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        """Load one verb."""
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"caffe_on_grid.cli.{module}"), name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Refuse an unknown verb with the nearest one."""
        if args[0] not in VERBS:
            near = words.nearest(args[0], VERBS) or f"; verbs are {', '.join(VERBS)}"
            raise click.UsageError(f"no verb {args[0]}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without loading a verb."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look over the words before the verb."""
        if not args:
            raise click.UsageError(f"say a verb ({', '.join(VERBS)}) or --help", ctx)
        before = next((i for i, word in enumerate(args) if not word.startswith("-")), len(args))
        words.check(args[:before], self.params, ctx)
        return super().parse_args(ctx, args)


@click.group(
    cls=Verbs,
    no_args_is_help=False,
    context_settings={"help_option_names": ["--help", "-help", "-h"], "max_content_width": 110},
)
@click.version_option(__version__, message="caffe-on-grid %(version)s")
def command() -> None:
    """Train Caffe nets on the GPU nodes of a Hadoop cluster, or here.

    `caffe-on-grid VERB --help` tells a verb's options.
    """


def main(argv: Optional[Sequence[str]] = None) -> NoReturn:
    """Run the command line and exit with the documented code; only here are errors caught."""
    _fill_closed()
    _raise_on_sigterm()
    try:
        code = command.main(None if argv is None else list(argv), prog_name="caffe-on-grid", standalone_mode=False)
    except click.ClickException as error:
        code = _refused(error.format_message(), 2)
    except GridError as error:
        code = _refused(str(error), error.exit_code)
    except Signalled as signalled:
        code = _refused(str(signalled), signalled.error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = _refused("interrupted", Interrupted.exit_code)
    except OSError as error:
        fault = of_the_machine(error)
        code = _refused(str(fault), fault.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _refused(message: str, code: int) -> int:
    with suppress(OSError):  # a log on a full disk takes no word, the exit code still tells
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _fill_closed() -> None:
    """Let closed standard streams lead nowhere, in children too: what is printed would hit a file of that number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _raise_on_sigterm() -> None:
    def raise_terminated(_number: int, _frame: Optional[FrameType]) -> NoReturn:
        raise Signalled(Terminated("ended by SIGTERM"))

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, raise_terminated)
