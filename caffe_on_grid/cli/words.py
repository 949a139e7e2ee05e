"""A look at the words before click parses them: click takes a mistyped `-devcies` for a row of one-letter options."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import click

REFUSED: dict[str, str] = {
    "-features": "this version does not extract features",
    "-label": "this version does not extract features",
    "-outputFormat": "this version does not extract features; a test writes text",
    "-resize": "this version does not resize images; convert with `caffe-on-grid convert`, which does",
}
"""CaffeOnSpark's words that are known, and what to say."""

NEEDLESS: dict[str, str] = {
    "persistent": "-persistent is needless: ranks read their records themselves, Spark keeps none",
    "lmdb_partitions": "-lmdb_partitions is needless: records are dealt out one by one, whatever the number of ranks",
}
"""CaffeOnSpark's words that are accepted, by click's names, and what is said of them."""


class Verb(click.Command):
    """A verb of which every word is looked over first; what follows `--` is kept aside, untouched, in `ctx.obj`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse unknown words, then parse."""
        words, ctx.obj = split(args)
        check(words, self.params, ctx)
        return super().parse_args(ctx, words)


def split(args: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The words before `--`, and those after it."""
    cut = args.index("--") if "--" in args else len(args)
    return list(args[:cut]), tuple(args[cut + 1 :])


def check(words: Sequence[str], params: Sequence[click.Parameter], ctx: click.Context) -> None:
    """click.UsageError for a word with a dash that is no option, with the nearest one, and for a missing value."""
    takes_value = dict(_options(params, ctx))
    waiting = None
    for word in words:
        name, sign, _ = word.partition("=")
        if waiting is not None and name not in takes_value:
            waiting = None
            continue
        if waiting is not None:
            raise click.UsageError(f"{waiting} needs a value, and {word} follows it", ctx)
        if len(word) > 1 and word[0] == "-":
            _known(name, takes_value, ctx)
            waiting = name if takes_value[name] and not sign else None


def _known(name: str, known: Any, ctx: click.Context) -> None:
    if name in REFUSED and name not in known:
        raise click.UsageError(f"{name}: {REFUSED[name]}", ctx)
    if name not in known:
        raise click.UsageError(f"no option {name}{nearest(name, known)}", ctx)


def nearest(word: str, known: Any) -> str:
    """` (did you mean …?)` for a known word that is nearly `word`, capitals and dashes apart."""
    plain = {_plain(option): option for option in sorted(known)}
    near = difflib.get_close_matches(_plain(word), plain, 1)
    return f" (did you mean {plain[near[0]]}?)" if near else ""


def _plain(word: str) -> str:
    return word.lstrip("-").replace("-", "").replace("_", "").lower() or word


def _options(params: Sequence[click.Parameter], ctx: click.Context) -> Iterator[tuple[str, bool]]:
    """Every option's words, and whether a value follows."""
    for name in ctx.help_option_names:
        yield name, False
    for param in params:
        if isinstance(param, click.Option):
            for name in [*param.opts, *param.secondary_opts]:
                yield name, not param.is_flag
