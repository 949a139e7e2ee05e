"""The verbs that rewrite nets and models here: upgrade."""

from __future__ import annotations

import click

from caffe_on_grid.cli import words


@click.command(cls=words.Verb)
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@click.option(
    "--ignore-unknown-fields", "ignore", is_flag=True, help="Leave out fields that Caffe lacks, and list them."
)
def upgrade(source: str, target: str, overwrite: bool, ignore: bool) -> None:
    """Rewrite an old net, solver or .caffemodel in today's form."""
    from caffe_on_grid.submit import upgrade as upgrades

    for remark in upgrades.rewrite(source, target, overwrite, ignore):
        click.echo(f"note: {remark}", err=True)
    click.echo(target)
