"""The verb that renders a workflow: oozie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from caffe_on_grid.cli import configuration, options, words
from caffe_on_grid.spec import defaults

KINDS = ("spark", "shell")


@click.command(cls=words.Verb, options_metavar="OPTIONS")
@options.declared("submit")
@click.option("-conf", "solver", metavar="PATH", required=True, help="The solver prototxt.")
@click.option("-net", "net", metavar="PATH", help="Use this net instead of the solver's `net:`.")
@click.option("--profile", metavar="NAME", help="Take a profile of the configuration files.")
@click.option("-train", "does_train", is_flag=True, help="Train; so it is without -test too.")
@click.option("-test", "does_test", is_flag=True, help="Test; after -train, the model just written.")
@click.option(
    "--action", "kind", type=click.Choice(KINDS), metavar="spark|shell", required=True, help="The kind of action."
)
@click.argument("out", metavar="FOLDER")
@click.pass_context
def oozie(ctx: click.Context, /, kind: str, out: str, does_train: bool, does_test: bool, **given: Any) -> None:
    """Write an Oozie workflow that runs the job."""
    from caffe_on_grid.submit import oozie_folder

    settings = configuration.current(given["profile"], options.layer(given, ctx.obj))
    tasks = (("train",) if does_train or not does_test else ()) + (("test",) if does_test else ())
    job = defaults.job(settings, tasks, given["solver"])
    for remark in oozie_folder.write(kind, job, settings.origins, given["net"], Path(out), os.environ):
        click.echo(f"note: {remark}", err=True)
    click.echo(out)
