"""The verb that writes a workflow application: its folder, what it refuses, and the option for actions of one's own."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import oozie_rules
import pytest
from lxml import etree
from projects import Run

WORDS = ("-conf", "proto/solver.prototxt", "-model", "hdfs:///models/m", "--runtime", "hdfs:///apps/r.tgz")


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def rendered(run: Run, *words: str) -> etree._Element:
    code, out, err = run("oozie", *words, "app")
    assert (code, out) == (0, "app\n"), err
    return oozie_rules.validated(Path("app/workflow.xml").read_text())


def job(path: str) -> dict:
    with zipfile.ZipFile(path) as packed:
        return json.loads(packed.read("job.json"))


def test_a_spark_application(project: Path, run: Run) -> None:
    root = rendered(run, "--action", "spark", *WORDS, "--queue", "night", "-input", "hdfs:///data")
    assert names(project / "app") == [
        "job.properties",
        "job.zip",
        "lib/caffe_on_grid.zip",
        "lib/caffe_on_grid_driver.py",
        "workflow.xml",
    ]
    assert root.find(".//w:action", oozie_rules.SPACES).get("name") == "train"
    assert oozie_rules.texts(root, "spark", "mode") == ["cluster"]
    assert oozie_rules.properties((project / "app/job.properties").read_text())["queueName"] == "night"
    shipped = job("app/job.zip")
    assert (shipped["output"]["model"], shipped["data"]["input"]) == ("hdfs:///models/m", "hdfs:///data")
    assert shipped["runtime"]["path"] is None
    assert oozie_rules.texts(root, "w", "case") == ["${fs:exists(concat(nameNode, '/models/m'))}"]
    assert "caffe_on_grid/driver/main.py" in zipfile.ZipFile("app/lib/caffe_on_grid.zip").namelist()


def test_no_file_is_shipped_twice_by_spark(project: Path, run: Run) -> None:
    """Oozie hands the files of lib/ to --files; the same name among the archives would end the application."""
    for name in ("more.conf", "libs.tgz", "layers.py", "runtime.tgz", "spark.conf"):
        (project / name).write_text(name)
    root = rendered(
        run, "--action", "spark", *WORDS[:4], "--runtime", "runtime.tgz", "--files", "more.conf,hdfs:///x.conf",
        "--archives", "libs.tgz#libs", "--py-files", "layers.py", "--properties-file", "spark.conf",
    )  # fmt: skip
    in_lib = {path.name for path in (project / "app/lib").iterdir()}
    archives = [text.partition("#")[0] for text in oozie_rules.texts(root, "spark", "archive")]
    assert archives == ["job.zip", "caffe_on_grid.tgz", "libs.tgz"]
    assert not in_lib & set(archives)
    assert in_lib == {"more.conf", "layers.py", "spark.conf", "caffe_on_grid.zip", "caffe_on_grid_driver.py"}
    assert oozie_rules.texts(root, "spark", "file") == ["hdfs:///x.conf"]
    opts = oozie_rules.split(*oozie_rules.texts(root, "spark", "spark-opts"))
    assert opts[opts.index("--py-files") + 1] == "./caffe_on_grid.zip,layers.py"
    assert opts[opts.index("--properties-file") + 1] == "spark.conf"
    assert all((project / "app" / name).is_file() for name in archives)


def test_a_shell_application(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "runtime.tgz").write_text("runtime")
    (project / "more.conf").write_text("more")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    model = "${nameNode}/models/${wf:id()}"
    words = ("--action", "shell", "-test", "-conf", "proto/solver.prototxt", "-model", model, "--files", "more.conf")
    root = rendered(run, *words, "--runtime", "runtime.tgz")
    arguments = oozie_rules.texts(root, "shell", "argument")
    assert f"output.model={model}" in arguments
    assert "runtime.path=${wf:appPath()}/caffe_on_grid.tgz" in arguments
    assert "cluster.files=more.conf" in arguments
    assert oozie_rules.texts(root, "shell", "archive") == ["caffe_on_grid.tgz#caffe_on_grid.tgz"]
    assert "SPARK_HOME=${sparkHome}" in oozie_rules.texts(root, "shell", "env-var")
    assert oozie_rules.properties((project / "app/job.properties").read_text())["sparkHome"] == "/opt/spark"
    assert names(project / "app/lib") == ["caffe-on-grid.sh", "caffe_on_grid.zip", "job.zip", "more.conf"]
    assert (project / "app/lib/caffe-on-grid.sh").stat().st_mode & 0o111
    assert job("app/lib/job.zip")["tasks"] == ["test"]


def test_places_come_from_the_hadoop_configuration(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = project / "conf"
    conf.mkdir()
    one = "<configuration><property><name>{}</name><value>{}</value></property></configuration>"
    (conf / "core-site.xml").write_text(one.format("fs.defaultFS", "hdfs://grid"))
    (conf / "yarn-site.xml").write_text(one.format("yarn.resourcemanager.address", "head:8032"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(conf))
    rendered(run, "--action", "spark", *WORDS)
    found = oozie_rules.properties((project / "app/job.properties").read_text())
    assert (found["nameNode"], found["resourceManager"]) == ("hdfs://grid", "head:8032")


CASES: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no action": (WORDS, 2, "Missing option '--action'"),
    "another action": (("--action", "hive", *WORDS), 2, "'hive' is not one of 'spark', 'shell'"),
    "no runtime": (("--action", "spark", *WORDS[:4]), 2, "--runtime is missing"),
    "runtime not here": (("--action", "spark", *WORDS[:4], "--runtime", "gone.tgz"), 3, "gone.tgz: no such file"),
    "local: runtime": (("--action", "spark", *WORDS[:4], "--runtime", "local:/r.tgz"), 2, "Oozie ships no local:"),
    "keytab": (("--action", "shell", *WORDS, "--keytab", "k", "--principal", "p"), 2, "--keytab: a workflow has"),
    "proxy user": (("--action", "shell", *WORDS, "--proxy-user", "p"), 2, "--proxy-user: a workflow runs as"),
    "tags": (("--action", "spark", *WORDS, "--conf", "spark.yarn.tags=a"), 2, "Oozie's spark action sets it"),
    "local spark": (("--action", "spark", *WORDS, "--master", "local[2]"), 2, "a spark action runs on yarn"),
    "expression": (("--action", "spark", *WORDS, "-input", "${data}"), 2, "use --action shell"),
    "plain": (("--action", "spark", *WORDS, "-input", "/data"), 2, "/data: name its store in a spark action (hdfs://"),
    "relative": (("--action", "shell", *WORDS, "-input", "data"), 2, "data.input data: name it in full"),
    "quotes": (("--action", "spark", *WORDS, "--conf", 'spark.a="b c"'), 2, "cannot hold a double quote"),
    "secret": (("--action", "shell", *WORDS, "--conf", "spark.my.secret=s3cret"), 2, "a secret in a workflow"),
    "file missing": (("--action", "shell", *WORDS, "--files", "gone"), 3, "gone: no such file"),
    "file twice": (("--action", "shell", *WORDS, "--files", "data/x,proto/x"), 3, "proto/x: its name in lib/ is taken"),
    "solver missing": (("--action", "shell", "-conf", "gone", *WORDS[2:]), 3, "gone: cannot be read"),
    "locked": (("--action", "shell", *WORDS, "--conf", "spark.speculation=true"), 2, "it is false here"),
    "mistyped": (("--action", "shell", *WORDS, "--node-lable", "x"), 2, "did you mean --node-label?"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str, project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAFFE_ON_GRID_RUNTIME")
    for folder in ("data", "proto"):
        (project / folder / "x").write_text("x")
    words, code, message = CASES[name]
    ended, out, err = run("oozie", *words, "app")
    assert (ended, out) == (code, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert "s3cret" not in err
    assert not (project / "app").exists()


@pytest.mark.parametrize(("folder", "message"), [("proto", "exists; remove it"), ("my app", "its name on HDFS")])
def test_refused_folders(folder: str, message: str, project: Path, run: Run) -> None:
    code, _, err = run("oozie", "--action", "shell", *WORDS, folder)
    assert code == 3
    assert message in err


def test_json_is_not_for_an_action(project: Path, run: Run) -> None:
    code, out, err = run("train", *WORDS[:4], "--oozie", "--json")
    assert (code, out) == (2, "")
    assert "--json: an Oozie shell action captures properties" in err


def test_what_fails_in_an_action_is_captured_too(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "action.xml").write_text("<configuration/>")
    monkeypatch.setenv("OOZIE_ACTION_CONF_XML", str(tmp_path / "action.xml"))
    code, out, err = run("train", "-conf", "proto/solver.prototxt", "-model", "proto", "--master", "local[1]")
    captured = oozie_rules.properties(out)
    assert code == 3
    assert captured["exit_code"] == "3"
    assert captured["cause"] == err.strip().removeprefix("error: ")
