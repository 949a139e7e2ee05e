"""The rendered texts: what Oozie's schemas accept, and what Oozie makes of them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import oozie_rules
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lxml import etree

from caffe_on_grid.errors import UsageError
from caffe_on_grid.spec import defaults
from caffe_on_grid.spec.job import Cluster, DataSpec, EngineSpec, JobSpec, Output, Runtime, Start, SyncSpec
from caffe_on_grid.submit import action, argv, oozie

SITE = argv.Site("spark-submit", "", "p", ".", archive="hdfs:///apps/r.tgz", runtime="./caffe_on_grid.tgz")
JOB = JobSpec(
    ("train", "test"),
    "solver.prototxt",
    Cluster(
        master="yarn",
        deploy_mode="cluster",
        executors=8,
        executor_cores=4,
        queue="${queueName}",
        name="LeNet, <every> night & day",
        node_label="gpu",
        conf={"spark.executor.extraJavaOptions": "-Xss1m  -Da=it's", "spark.executorEnv.A_B": "c d"},
        files=("hdfs:///etc/extra.conf",),
        archives=("hdfs:///libs.tgz#libs",),
        passthrough=("--verbose", "--driver-java-options", "-Dx=1 -Dy=2"),
        gang_timeout_s=90.0,
    ),
    runtime=Runtime("hdfs:///apps/r.tgz"),
    engine=EngineSpec(solver_mode="gpu", devices=4, allow_python_layers=True),
    data=DataSpec("hdfs:///data/train", shuffle=False, seed=7),
    sync=SyncSpec(check_every=0),
    start=Start(weights=("hdfs:///a.caffemodel", "hdfs:///b.caffemodel")),
    output=Output("${nameNode}/models/${wf:id()}.caffemodel", overwrite=True),
)


def spark(job: JobSpec = JOB) -> etree._Element:
    text = oozie.workflow("it's <LeNet> & more", "train-test", oozie.spark(argv.command(job, SITE), oozie.Parts()))
    return oozie_rules.validated(text)


def shell(job: JobSpec = JOB) -> etree._Element:
    parts = oozie.Parts(archives=("hdfs:///apps/r.tgz#caffe_on_grid.tgz",), env={"HADOOP_USER_NAME": "${wf:user()}"})
    return oozie_rules.validated(oozie.workflow("shell", "train", oozie.shell(job, parts)))


def test_a_spark_action_makes_the_command_again() -> None:
    """What SparkMain passes on are the words of the command itself, the moved ones and the Python excepted."""
    root, command = spark(), argv.command(JOB, SITE)
    opts = oozie_rules.split(*oozie_rules.texts(root, "spark", "spark-opts"))
    moved = {"--master": "yarn", "--deploy-mode": "cluster", "--name": JOB.cluster.name}
    moved |= {flag: command.argv[command.argv.index(flag) + 1] for flag in ("--archives", "--files")}
    words = command.argv[1 : command.argv.index(f"./{argv.DRIVER}")]
    expected = [word for word in words if word not in {*moved, *moved.values()}]
    assert opts == [*expected, "--conf", "spark.pyspark.python=./caffe_on_grid.tgz/bin/python"]
    assert oozie_rules.texts(root, "spark", "arg") == ["--job", "job"]


def test_what_has_an_element_of_its_own() -> None:
    root = spark()
    found = {tag: oozie_rules.texts(root, "spark", tag) for tag in ("master", "mode", "name", "jar", "file", "archive")}
    assert found == {
        "master": ["yarn"],
        "mode": ["cluster"],
        "name": [JOB.cluster.name],
        "jar": ["caffe_on_grid_driver.py"],
        "file": ["hdfs:///etc/extra.conf"],
        "archive": ["job.zip#job", "hdfs:///apps/r.tgz#caffe_on_grid.tgz", "hdfs:///libs.tgz#libs"],
    }
    assert "spark.yarn.tags" not in oozie_rules.texts(root, "spark", "spark-opts")[0]


def test_the_jobs_own_files_are_known() -> None:
    own = oozie.own_files(argv.command(JOB, SITE))
    assert {argv.DRIVER, argv.JOB_ZIP, argv.PACKAGE_ZIP} <= set(own)
    assert all("/" not in name for name in own)


def test_in_client_mode_the_launcher_has_the_runtimes_python() -> None:
    root = spark(replace(JOB, cluster=replace(JOB.cluster, deploy_mode="client")))
    opts = oozie_rules.split(*oozie_rules.texts(root, "spark", "spark-opts"))
    assert "spark.pyspark.driver.python=./caffe_on_grid.tgz/bin/python" in opts
    assert not [word for word in opts if argv.LOGGING in word]
    assert oozie_rules.texts(root, "spark", "arg") == ["--job", "./job"]


def test_a_shell_actions_arguments_are_the_job_again() -> None:
    root = shell()
    settings = defaults.settings([action.layer(oozie_rules.texts(root, "shell", "argument"))])
    assert replace(defaults.job(settings, JOB.tasks, JOB.solver), origins={}) == JOB
    assert oozie_rules.texts(root, "shell", "exec") == ["caffe-on-grid.sh"]
    assert oozie_rules.texts(root, "shell", "env-var") == ["HADOOP_USER_NAME=${wf:user()}"]
    assert root.find(".//shell:capture-output", oozie_rules.SPACES) is not None


def test_the_launcher_has_room_for_a_driver_of_its_own() -> None:
    client = replace(JOB.cluster, deploy_mode="client", driver_memory="4g")
    sizes = [
        oozie_rules.texts(shell(replace(JOB, cluster=c)), "shell", "launcher/shell:memory.mb")
        for c in (JOB.cluster, client)
    ]
    assert sizes == [["2048"], ["6144"]]


def test_every_leaf_survives_the_arguments() -> None:
    """Leaf by leaf, a value that is not the built-in one."""
    other = {str: "word", int: 3, float: 90.0, tuple: ("a", "b"), dict: {"k": "v=w"}}
    for leaf in defaults.leaves().values():
        value = not leaf.default if leaf.type is bool else other.get(leaf.type)
        value = defaults.CHOICES.get(leaf.name, (value,))[-1]
        value = "2g" if leaf.name in defaults.MEMORY else value
        job = defaults.job(defaults.settings([defaults.Layer("x", {leaf.name: value})]), ("train",), "s")
        again = defaults.settings([action.layer(oozie.arguments(job))])
        assert replace(defaults.job(again, ("train",), "s"), origins={}) == replace(job, origins={}), leaf.name


@pytest.mark.parametrize(
    ("uri", "case"),
    [
        ("hdfs:///models/m", "${fs:exists(concat(nameNode, '/models/m'))}"),
        ("hdfs://grid/it's", "${fs:exists('hdfs://grid/it\\'s')}"),
    ],
)
def test_a_model_that_exists_ends_the_workflow_before_the_action(uri: str, case: str) -> None:
    body = oozie.spark(argv.command(JOB, SITE), oozie.Parts())
    root = oozie_rules.validated(oozie.workflow("w", "train", body, uri))
    assert oozie_rules.texts(root, "w", "case") == [case]
    ways = {tag: root.find(f".//w:{tag}", oozie_rules.SPACES).get("to") for tag in ("start", "case", "default")}
    assert ways == {"start": "look", "case": "exists", "default": "train"}


SPOILS = [
    ("<jar>caffe_on_grid_driver.py</jar>", ""),
    ("<arg>--job</arg>", "<arg>--job</arg><master>yarn</master>"),
    ('<ok to="end" />', ""),
    ('<start to="train-test" />', '<start to="1 train" />'),
    ("<spark-opts>", "<sparkopts>"),
]


@pytest.mark.parametrize(("before", "after"), SPOILS)
def test_the_schemas_refuse_what_is_broken(before: str, after: str) -> None:
    text = oozie.workflow("w", "train-test", oozie.spark(argv.command(JOB, SITE), oozie.Parts()))
    assert before in text
    spoilt = text.replace(before, after).replace(
        "</spark-opts>", "</sparkopts>" if "sparkopts" in after else "</spark-opts>"
    )
    assert not oozie_rules.schema().validate(etree.fromstring(spoilt.encode()))


# --- spark-opts -------------------------------------------------------------------------------------------------------

options = st.from_regex(r"--[a-zA-Z0-9.]+[a-zA-Z0-9.-]*", fullmatch=True)
values = st.text(min_size=1).filter(lambda text: not re.match(r"--[a-zA-Z0-9.]+[a-zA-Z0-9.-]*\Z", text, re.ASCII))
pairs = st.lists(st.one_of(st.tuples(options), st.tuples(options, values)), min_size=1)


@given(pairs)
def test_oozie_splits_what_was_joined(groups: list[tuple[str, ...]]) -> None:
    """Whatever the words are, they come out of Oozie's splitting as they went in, or they are refused."""
    words = [word for group in groups for word in group]
    try:
        text = oozie.spark_opts(words)
    except UsageError:
        return
    assert oozie_rules.split(text) == words
    assert oozie_rules.split_4(text) == words


@given(st.lists(st.from_regex(r"[a-zA-Z0-9._]{1,9}=[ -!#-,.-~]{0,20}[!#-,.-~]", fullmatch=True)))
def test_ordinary_settings_are_never_refused(settings: list[str]) -> None:
    words = [word for setting in settings for word in ("--conf", setting)]
    assume(all(argv.masked(word) == word for word in words))
    assert oozie_rules.split(oozie.spark_opts(words)) == words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--conf", 'spark.a="b"'], "cannot hold a double quote"),
        (["--conf", "spark.a=x --y"], "for an option of spark-submit"),
        (["--conf", "spark.a=x--y"], "for an option of spark-submit"),
        (["--conf", "spark.a=b", "stray"], "is an option or follows one"),
        (["stray"], "is an option or follows one"),
        (["--name", " x"], "drops blanks"),
        (["--name", ""], "drops blanks"),
        (["--conf", "spark.a=b\nc"], "no line breaks"),
        (["--conf", "spark.ssl.keyPassword=s3cret"], r"keyPassword=\*{8}: a secret"),
    ],
)
def test_what_no_quoting_keeps_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        oozie.spark_opts(words)
    assert "s3cret" not in str(refused.value)


def test_a_secret_of_oozies_is_not_one() -> None:
    assert oozie.spark_opts(["--conf", "spark.ssl.keyPassword=${key}"]) == "--conf spark.ssl.keyPassword=${key}"


@pytest.mark.parametrize("text", ["a\x00b", "a\x0bb", "a\rb", "\ufffe"])
def test_what_xml_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a workflow can hold no line breaks"):
        shell(replace(JOB, cluster=replace(JOB.cluster, name=text)))


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_job_properties() -> None:
    known = {"fs.defaultFS": "hdfs://grid", "yarn.resourcemanager.hostname": "head"}
    text = oozie.job_properties("shell", "nightly", known, "größe", "/opt/spark")
    found = oozie_rules.properties(text)
    assert found == {
        "nameNode": "hdfs://grid",
        "resourceManager": "head:8032",
        "queueName": "größe",
        "sparkHome": "/opt/spark",
        "oozie.use.system.libpath": "true",
        "oozie.wf.application.path": "${nameNode}/user/${user.name}/nightly",
    }
    assert text.isascii()


def test_every_variable_of_a_workflow_is_a_property() -> None:
    for kind, root in (("spark", spark()), ("shell", shell())):
        used = set(re.findall(r"\$\{(\w+)\}", etree.tostring(root, encoding="unicode")))
        assert used - {"NAME"} <= set(oozie_rules.properties(oozie.job_properties(kind, "f", {}, "q")))


def test_the_script_runs_the_package_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$PYTHONPATH" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "run").write_text(oozie.script("./python"))
    done = subprocess.run(["sh", "run", "a b", "", "--"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"{tmp_path}/caffe_on_grid.zip",
        "-m",
        "caffe_on_grid.submit.action",
        "a b",
        "",
        "--",
    ]
