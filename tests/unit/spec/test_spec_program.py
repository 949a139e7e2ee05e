"""What programs with words of their own say of wrong ones."""

from __future__ import annotations

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
