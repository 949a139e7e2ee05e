from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from projects import Run

from caffe_on_grid import cli
from caffe_on_grid.cli import configuration, options, train
from caffe_on_grid.spec import defaults

VERBS = {"train": train.train, "test": train.test, "submit": train.submit}


def test_every_leaf_has_an_option_or_is_deliberately_without() -> None:
    optioned = {option.leaf for option in options.OPTIONS}
    assert optioned | set(options.WITHOUT) == set(defaults.leaves())
    assert not optioned & set(options.WITHOUT)


def test_every_option_is_declared_by_click_for_its_verbs_alone() -> None:
    for option in options.OPTIONS:
        for verb, command in VERBS.items():
            declared = {word for param in command.params for word in [*param.opts, *param.secondary_opts]}
            assert (set("/".join(option.flags).split("/")) <= declared) == (verb in option.verbs), (option.flags, verb)


@pytest.mark.parametrize("verb", VERBS)
def test_every_declared_option_is_of_the_table_or_no_leafs(verb: str) -> None:
    own = {"solver", "net", "profile", "dry_run", "as_json", "oozie", "verbose"}
    if verb == "submit":
        own |= {"does_train", "does_test", "persistent", "lmdb_partitions"}
    table = {options.parameter(option.leaf) for option in options.OPTIONS}
    names = {param.name for param in VERBS[verb].params}
    assert names - table == own
    assert all(isinstance(param, click.Option) and param.help for param in VERBS[verb].params)


def test_switches_are_the_leaves_that_are_false_at_first_or_have_a_word_for_no() -> None:
    leaves = defaults.leaves()
    for option in options.OPTIONS:
        leaf, pair = leaves[option.leaf], "/--no-" in option.flags[0]
        assert option.switch == (leaf.type is bool and (leaf.default is False or pair)), option


SAMPLES = {str: "word", int: "3", float: "2m", bool: "off", tuple: "a,b", dict: "k=v=w"}
EXPECTED = {str: "word", int: 3, float: 120.0, bool: False, tuple: ("a", "b"), dict: {"k": "v=w"}}


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.flags[0])
def test_every_option_reaches_its_leaf(option: options.Option, home: Path) -> None:
    leaf = defaults.leaves()[option.leaf]
    choice = defaults.CHOICES.get(leaf.name, (None,))[-1]
    memory = "2g" if leaf.name in defaults.MEMORY else None
    text = choice or memory or SAMPLES[leaf.type]
    layer = options.layer({options.parameter(leaf.name): True if option.switch else (text,)}, ())
    expected = True if option.switch else choice or memory or EXPECTED[leaf.type]
    settings = configuration.settings({}, None, layer)
    assert settings.values[leaf.name] == expected
    assert f"option {option.flags[0]}" in settings.origins.values()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train -conf s -modle m", "no option -modle (did you mean -model?)"),
        ("train -conf s --model m", "no option --model (did you mean -model?)"),
        ("train -conf s --node-lable gpu", "no option --node-lable (did you mean --node-label?)"),
        ("train -conf s -clustersize 2", "no option -clustersize (did you mean -clusterSize?)"),
        ("train -conf s -zzz", "no option -zzz"),
        ("train -conf s -features ip", "-features: this version does not extract features"),
        ("submit -train -features ip -conf s", "-features: this version does not extract features"),
        ("submit -label label -conf s", "-label: this version does not extract features"),
        ("submit -conf s", "say -train, -test or both"),
        ("submit -train -clusterSize 2 --num-executors 3 -conf s", "are one option, and say 2 and 3"),
        ("train -conf", "-conf' requires an argument"),
        ("train -conf -model m", "-conf needs a value, and -model follows it"),
        ("train -model m", "Missing option '-conf'"),
        ("train -conf s --conf spark.x", "--conf: expected KEY=VALUE, got 'spark.x'"),
        ("train -conf s stray", "unexpected extra argument (stray)"),
        ("trian", "no verb trian (did you mean train?)"),
        ("features", "no verb features; verbs are train, test"),
        ("--verison", "no option --verison (did you mean --version?)"),
        ("", "say a verb (train, test,"),
        ("config", "Missing command"),
    ],
)
def test_wrong_words(run: Run, words: str, message: str) -> None:
    code, out, err = run(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def line(run: Run, *words: str) -> list[str]:
    code, out, err = run(*words, "--dry-run")
    assert code == 0, err
    assert out.count("\n") == 1
    return shlex.split(out)


def test_both_words_for_executors_may_agree(project: Path, run: Run) -> None:
    words = ("submit", "-train", "-conf", "proto/solver.prototxt", "-model", "m", "-clusterSize", "2")
    assert "local[2]" in line(run, *words, "--num-executors", "2")


def test_needless_words_are_said_to_be_so(project: Path, run: Run) -> None:
    words = "submit -train -test -conf proto/solver.prototxt -model m -persistent -lmdb_partitions 4 --dry-run"
    code, out, err = run(*words.split())
    assert code == 0
    assert "note: -persistent is needless" in err
    assert "note: -lmdb_partitions is needless" in err
    assert "train+test" in out


def test_words_after_the_dashes_go_to_spark_untouched(project: Path, run: Run) -> None:
    words = "train -conf proto/solver.prototxt -model m --dry-run -- --verbose -conf x --jars a.jar"
    code, out, _ = run(*words.split())
    assert code == 0
    given = shlex.split(out)
    at = given.index("--verbose")
    assert given[at : at + 5] == ["--verbose", "-conf", "x", "--jars", "a.jar"]
    assert given[at + 5].endswith("caffe_on_grid_driver.py")


def test_the_dry_runs_folder_is_kept_and_a_failed_ones_is_not(project: Path, run: Run) -> None:
    words = line(run, "train", "-conf", "proto/solver.prototxt", "-model", "m")
    assert Path(words[-1], "job.json").is_file()
    before = sorted(project.parent.iterdir())
    assert run("train", "-conf", "proto/solver.prototxt", "-model", "proto", "--dry-run").code == 3
    assert sorted(project.parent.iterdir()) == before


def test_the_same_command_gives_the_same_line(project: Path, run: Run) -> None:
    words = ("train", "-conf", "proto/solver.prototxt", "-model", "m", "--conf", "b=1", "--conf", "a=2")
    one, two = (line(run, *words) for _ in range(2))
    folders = [str(Path(words[-1]).parent) for words in (one, two)]
    assert [word.replace(folders[0], "F") for word in one] == [word.replace(folders[1], "F") for word in two]


def test_every_verb_loads_and_its_summary_is_the_commands(home: Path) -> None:
    with click.Context(cli.command) as ctx:
        for verb in cli.VERBS:
            command = cli.command.get_command(ctx, verb)
            assert command is not None
            assert command.get_short_help_str(200)
