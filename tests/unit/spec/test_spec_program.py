"""What programs with words of their own say of wrong ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from caffe_on_grid.spec import program


def parser() -> program.Parser:
    top = program.Parser(prog="tool")
    commands = top.add_subparsers(dest="kind", required=True, metavar="KIND")
    made = commands.add_parser("mnist")
    made.add_argument("out")
    made.add_argument("--overwrite", action="store_true")
    made.add_argument("--phase", choices=("TRAIN", "TEST"))
    return top


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mnst x", "error: argument KIND: invalid choice: 'mnst'"),
        ("mnst x", "(did you mean 'mnist'?)"),
        ("mnist x --overwrit", "error: no option --overwrit (did you mean '--overwrite'?)"),
        ("mnist --foo=1 x", "error: no option --foo=1"),
        ("mnist x --phase TSET", "(did you mean 'TEST'?)"),
        ("mnist", "error: the following arguments are required: out"),
        ("", "error: the following arguments are required: KIND"),
    ],
)
def test_wrong_words_are_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words.split())
    said = capsys.readouterr()
    assert (ended.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert message in said.err


def test_right_words_and_negative_numbers_pass() -> None:
    assert parser().parse_args(["mnist", "-3", "--overwrite"]).out == "-3"


WORDS = "from caffe_on_grid.errors import ConfigError; from caffe_on_grid.spec import program; import sys; "


def shell(line: str, work: str) -> subprocess.CompletedProcess[str]:
    done = [sys.executable, "-c", f"{WORDS}\ndef work():\n    {work}\nsys.exit(program.end(work))"]
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {line}', "", *done],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_full_disk_is_told_in_a_line() -> None:
    done = shell(">/dev/full", "print('word')")
    assert (done.returncode, done.stderr) == (4, "error: this machine: No space left on device\n")


def test_a_reader_that_has_seen_enough_hears_no_more() -> None:
    done = shell("| true", "[print(n) for n in range(1000000)]")
    assert (done.returncode, done.stderr) == (1, "")


def test_the_exit_code_is_that_of_the_error_where_it_cannot_be_told() -> None:
    assert shell("2>/dev/full", "raise ConfigError('x')").returncode == 3
