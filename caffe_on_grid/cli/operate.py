"""The verbs about the tool itself: config, pack."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import click

from caffe_on_grid.cli import configuration, words
from caffe_on_grid.spec import defaults


@click.command(cls=words.Verb)
@click.option("--engine", metavar="caffe|torch", default="caffe", show_default=True, help="What steps the nets in it.")
@click.option("--out", metavar="PATH", help="The archive to write; else caffe_on_grid.tgz or caffe_on_grid_torch.tgz.")
@click.option(
    "--flavour",
    metavar="NAME",
    help="caffe: slim, or full (what Python layers use too); torch: gpu, or cpu. Else the first.",
)
def pack(engine: str, out: Optional[str], flavour: Optional[str]) -> None:
    """Build the ranks' runtime as an archive, unpack it elsewhere, and check it there."""
    from caffe_on_grid.submit import pack as builder

    click.echo(builder.pack(Path(out) if out else None, flavour, engine))


@click.group(no_args_is_help=False)
def config() -> None:
    """The configuration and where it comes from."""


@config.command(cls=words.Verb)
@click.option("--origin", is_flag=True, help="Say where each value came from.")
@click.option("--profile", metavar="NAME", help="With a profile of the configuration files.")
def show(origin: bool, profile: Optional[str]) -> None:
    """Print every key and its value, as a configuration file has them."""
    settings = configuration.current(profile)
    for line in _lines(settings, origin):
        click.echo(line)


def _lines(settings: defaults.Settings, origin: bool) -> list[str]:
    section, lines = "", []
    for name, value in settings.values.items():
        head, _, key = name.rpartition(".")
        if head and head != section:
            lines.append(f"{head}:")
        section = head
        if name != defaults.SPARK_CONF:
            lines.append(_line("  " * bool(head) + key, value, settings.origins.get(name), origin))
    lines.append("spark_conf:")
    for key, value in settings.values[defaults.SPARK_CONF].items():
        lines.append(_line(f"  {key}", value, settings.origins[f"{defaults.SPARK_CONF}.{key}"], origin))
    return lines


def _line(key: str, value: Any, where: Optional[str], origin: bool) -> str:
    import json

    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return f"{key}: {text}" + (f"  # {where or 'built in'}" if origin else "")
