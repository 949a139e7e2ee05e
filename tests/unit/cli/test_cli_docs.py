"""docs/cli.md says what click declares. To accept a change: ACCEPT=1 pytest tests/unit/cli/test_cli_docs.py."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from caffe_on_grid import cli, errors
from caffe_on_grid.cli import models, oozie, operate, train
from caffe_on_grid.spec import defaults

COMMANDS = {
    "train": train.train,
    "test": train.test,
    "submit": train.submit,
    "oozie": oozie.oozie,
    "upgrade": models.upgrade,
    "pack": operate.pack,
    "config show": operate.show,
}
JOBS = ("train", "test", "submit")


def row(words: list[str], metavar: str, verbs: list[str], help_text: str) -> str:
    option = ", ".join(f"`{word}`" for word in words) + (f" {metavar}" if metavar else "")
    where = "" if len(verbs) == len(JOBS) else f" ({', '.join(verbs)})"
    return f"| {option.replace('|', chr(92) + '|')} | {help_text}{where} |"


def options_of(verb: str) -> list[click.Option]:
    """A verb's options; of oozie's those that no job's verb has."""
    found = [param for param in COMMANDS[verb].params if isinstance(param, click.Option)]
    shared = {word for param in COMMANDS["submit"].params for word in param.opts} if verb == "oozie" else set()
    return [param for param in found if not shared & set(param.opts)]


def table(verbs: tuple[str, ...]) -> str:
    rows: dict[str, tuple[list[str], str, list[str], str]] = {}
    for verb in verbs:
        for param in options_of(verb):
            metavar = "" if param.is_flag else str(param.metavar)
            rows.setdefault(param.opts[0], ([*param.opts, *param.secondary_opts], metavar, [], str(param.help)))[
                2
            ].append(verb)
    shown = [
        row(words, metavar, found if len(verbs) > 1 else list(JOBS), text)
        for words, metavar, found, text in rows.values()
    ]
    return "\n".join(["| option | |", "|---|---|", *shown])


def verbs_table() -> str:
    return "\n".join(["| verb | |", "|---|---|", *(f"| `{name}` | {text} |" for name, (_, text) in cli.VERBS.items())])


def codes_table() -> str:
    codes = {1: "a bug: a traceback says where"} | {
        kind.exit_code: str(kind.__doc__).strip() for kind in errors.CATEGORIES.values() if kind is not errors.DataError
    }
    return "\n".join(
        ["| code | |", "|---|---|", "| 0 | Done. |", *(f"| {code} | {text} |" for code, text in sorted(codes.items()))]
    )


GENERATED = {
    "verbs": verbs_table,
    "jobs": lambda: table(JOBS),
    "oozie": lambda: table(("oozie",)),
    "upgrade": lambda: table(("upgrade",)),
    "pack": lambda: table(("pack",)),
    "config": lambda: table(("config show",)),
    "codes": codes_table,
}


def filled(text: str) -> str:
    for name, make in GENERATED.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        assert len(re.findall(pattern, text, re.DOTALL)) == 1, name
        text = re.sub(pattern, lambda found, make=make: f"{found[1]}{make()}\n{found[2]}", text, flags=re.DOTALL)
    return text


def test_the_tables_are_clicks_declarations(root: Path) -> None:
    path = root / "docs" / "cli.md"
    now = filled(path.read_text())
    if os.environ.get("ACCEPT"):
        path.write_text(now)
    assert path.read_text() == now, f"ACCEPT=1 pytest {__file__}"


def test_every_option_that_the_text_names_exists(root: Path) -> None:
    known = {
        word
        for command in COMMANDS.values()
        for param in command.params
        for word in [*param.opts, *param.secondary_opts]
    }
    known |= {"--help", "--version", "--verbose"}
    text = (root / "docs" / "cli.md").read_text()
    named = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    assert named - known <= {
        "-features",
        "-label",
        "-outputFormat",
        "-resize",
        "-gpu",
        "-phase",
        "-level",
        "-stage",
        "-iterations",
        "-outputs",
        "-batch",
        "--svg",
    }


@pytest.mark.parametrize("leaf", ["cluster.queue", "runtime.path"])
def test_the_text_names_variables_that_exist(root: Path, leaf: str) -> None:
    assert f"`{defaults.variable(leaf)}" in (root / "docs" / "cli.md").read_text()
